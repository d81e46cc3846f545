"""The flags of measuring."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from tvmscope.cli.flags.option import given, option
from tvmscope.errors import UsageError
from tvmscope.messages import _, msg
from tvmscope.parsing import parse_duration_s

_TIME = msg("How to measure")
Iterations = Annotated[
    int | None,
    option(
        _TIME,
        "--iterations",
        metavar="N",
        min=1,
        help=msg("Time exactly this many runs per backend."),
    ),
]
Warmup = Annotated[
    int | None,
    option(
        _TIME,
        "--warmup",
        metavar="N",
        min=0,
        help=msg("Do exactly this many warm-up runs."),
        default=msg("until steady"),
    ),
]


def duration_option(default: str) -> Any:
    """Return the option that says how long each backend is measured."""
    return option(
        _TIME,
        "--duration",
        metavar="TIME",
        help=_("Measure each backend for this time: 5s, 1m."),
        default=default,
    )


def duration_in_s(duration: str | None) -> float | None:
    """Return the seconds of a duration, if one is given; refuse none at all."""
    found = None if duration is None else parse_duration_s(duration)
    if found == 0:
        raise UsageError(msg("--duration must be more than 0; use --iterations 1 for a single run"))
    return found


def measurement(
    iterations: Iterations = None,
    warmup: Warmup = None,
    duration: Annotated[str | None, duration_option(_("8s"))] = None,
    mode: Annotated[
        Literal["latency", "throughput"] | None,
        option(
            _TIME,
            "--mode",
            help=_(
                "Measure latency or throughput; throughput also shows items per second (see "
                "--batch-size)."
            ),
            default=_("latency"),
        ),
    ] = None,
    cache: Annotated[
        Literal["warm", "cold"] | None,
        option(
            _TIME,
            "--cache",
            help=_(
                "Measure with warm or cold caches; cold flushes the CPU caches before each run."
            ),
            default=_("warm"),
        ),
    ] = None,
) -> dict[str, Any]:
    duration_s = duration_in_s(duration)
    return given(
        iterations=iterations, warmup=warmup, duration_s=duration_s, mode=mode, cache=cache
    )
