"""The flags of a suite."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tvmscope.cli.flags.measurement import Iterations, Warmup, duration_in_s, duration_option
from tvmscope.cli.flags.option import given, option
from tvmscope.messages import msg

_SUITE = msg("Suite")
_TIME = msg("How to measure")
DURATION_S = 0.5
"""Per backend and problem: a suite is for many problems, `bench` for one."""

Problems = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="DIR|LIST|MODEL",
        help=msg("Folders of model files, lists with one model per line, files or names."),
        show_default=False,
    ),
]
Include = Annotated[
    list[str] | None,
    option(
        _SUITE, "--include", metavar="PATTERN", help=msg("Take only problems such as 'nets/*'.")
    ),
]
Exclude = Annotated[
    list[str] | None,
    option(_SUITE, "--exclude", metavar="PATTERN", help=msg("Leave problems such as '*big*' out.")),
]
Timeout = Annotated[
    str | None,
    option(
        _SUITE,
        "--timeout",
        metavar="TIME",
        help=msg("Limit a problem as a whole, compiling included."),
        default=msg("5m"),
    ),
]
Memory = Annotated[
    str | None,
    option(
        _SUITE,
        "--memory",
        metavar="SIZE",
        help=msg("Limit the memory of each worker, compiling included: 8G, 500M."),
        default=msg("75% of the machine's"),
    ),
]
Disk = Annotated[
    str | None,
    option(
        _SUITE,
        "--disk",
        metavar="SIZE",
        help=msg("Limit the files that a problem writes."),
        default=msg("50% of what is free"),
    ),
]
Retry = Annotated[
    bool,
    option(_SUITE, "--retry", help=msg("Measure problems again that did not end right.")),
]
Keep = Annotated[
    bool, option(_SUITE, "--keep-artifacts", help=msg("Keep what was compiled for each problem."))
]
Compare = Annotated[
    Path | None,
    option(
        _SUITE, "--compare", metavar="OLD", help=msg("Show what moved since this suite's folder.")
    ),
]
Share = Annotated[
    str | None,
    option(_SUITE, "--shard", metavar="3/8", help=msg("Measure the third of eight parts.")),
]
Merge = Annotated[
    list[Path] | None,
    option(
        _SUITE,
        "--merge",
        metavar="DIR",
        help=msg("Add the rows of this suite's folder, such as another shard's; repeatable."),
    ),
]
Scheduler = Annotated[
    str | None,
    option(
        _SUITE,
        "--scheduler",
        metavar="tcp://HOST:8786",
        help=msg(
            "Measure on the workers of this Dask cluster; tls:// unless it is on this machine."
        ),
    ),
]
TlsCa = Annotated[
    Path | None,
    option(_SUITE, "--tls-ca", metavar="FILE", help=msg("The cluster's certificate authority.")),
]
TlsCert = Annotated[
    Path | None, option(_SUITE, "--tls-cert", metavar="FILE", help=msg("Our certificate."))
]
TlsKey = Annotated[Path | None, option(_SUITE, "--tls-key", metavar="FILE", help=msg("Its key."))]
Profile = Annotated[
    bool,
    option(
        _SUITE,
        "--profile/--no-profile",
        help=msg("Time the kernels of problems that are behind another backend."),
        default=msg("profile"),
    ),
]


def brief(
    iterations: Iterations = None,
    warmup: Warmup = None,
    duration: Annotated[str | None, duration_option(f"{DURATION_S:g}s")] = None,
) -> dict[str, Any]:
    duration_s = duration_in_s(duration) or DURATION_S
    return given(iterations=iterations, warmup=warmup, duration_s=duration_s)
