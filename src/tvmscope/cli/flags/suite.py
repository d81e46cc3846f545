"""The flags of a suite."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tvmscope.cli.flags.groups import Iterations, Warmup
from tvmscope.cli.flags.option import given, option
from tvmscope.messages import _
from tvmscope.parsing import parse_duration_s

_SUITE = _("Suite")
_TIME = _("How to measure")
DURATION_S = 0.5
"""Per backend and problem: a suite is for many problems, `bench` for one."""

Problems = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="DIR|LIST|MODEL",
        help=_("Folders of model files, lists with one model per line, files or names."),
        show_default=False,
    ),
]
Include = Annotated[
    list[str] | None,
    option(_SUITE, "--include", metavar="PATTERN", help=_("Take only problems such as 'nets/*'.")),
]
Exclude = Annotated[
    list[str] | None,
    option(_SUITE, "--exclude", metavar="PATTERN", help=_("Leave problems such as '*big*' out.")),
]
Timeout = Annotated[
    str | None,
    option(
        _SUITE,
        "--timeout",
        metavar="TIME",
        help=_("Limit a problem as a whole, compiling included."),
        default=_("5m"),
    ),
]
Memory = Annotated[
    str | None,
    option(
        _SUITE,
        "--memory",
        metavar="SIZE",
        help=_("Limit the memory of each worker, compiling included: 8G, 500M."),
        default=_("75% of the machine's"),
    ),
]
Disk = Annotated[
    str | None,
    option(
        _SUITE,
        "--disk",
        metavar="SIZE",
        help=_("Limit the files that a problem writes."),
        default=_("50% of what is free"),
    ),
]
Retry = Annotated[
    bool,
    option(_SUITE, "--retry", help=_("Measure problems again that did not end right.")),
]
Keep = Annotated[
    bool, option(_SUITE, "--keep-artifacts", help=_("Keep what was compiled for each problem."))
]
Compare = Annotated[
    Path | None,
    option(
        _SUITE, "--compare", metavar="OLD", help=_("Show what moved since this suite's folder.")
    ),
]
Share = Annotated[
    str | None,
    option(_SUITE, "--shard", metavar="3/8", help=_("Measure the third of eight parts.")),
]
Merge = Annotated[
    list[Path] | None,
    option(
        _SUITE,
        "--merge",
        metavar="DIR",
        help=_("Add the rows of this suite's folder, such as another shard's; repeatable."),
    ),
]
Profile = Annotated[
    bool,
    option(
        _SUITE,
        "--profile/--no-profile",
        help=_("Time the kernels of problems that are behind another backend."),
        default=_("profile"),
    ),
]


def brief(
    iterations: Iterations = None,
    warmup: Warmup = None,
    duration: Annotated[
        str | None,
        option(
            _TIME,
            "--duration",
            metavar="TIME",
            help=_("Measure each backend for this time: 5s, 1m."),
            default=f"{DURATION_S:g}s",
        ),
    ] = None,
) -> dict[str, Any]:
    duration_s = DURATION_S if duration is None else parse_duration_s(duration)
    return given(iterations=iterations, warmup=warmup, duration_s=duration_s)
