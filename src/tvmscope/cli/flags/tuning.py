"""The flags about tuning."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from tvmscope.cli.flags.option import given, names, option
from tvmscope.errors import UsageError
from tvmscope.messages import _, msg
from tvmscope.parsing import parse_duration_s, parse_fraction

_SEARCH = msg("How to search")
_HOW = msg("How to compile")


def searching(
    budget: Annotated[
        str | None,
        option(
            _SEARCH,
            "--budget",
            metavar="TIME",
            help=_(
                "Limit the wall-clock time of the whole run, from loading to the proof: 90s, "
                "10m, 1h."
            ),
            default=_("10m"),
        ),
    ] = None,
    trials: Annotated[
        int | None,
        option(_SEARCH, "--trials", metavar="N", min=1, help=_("Stop after this many new trials.")),
    ] = None,
    max_trials_per_task: Annotated[
        int | None,
        option(
            _SEARCH,
            "--max-trials-per-task",
            metavar="N",
            min=1,
            help=_("Try at most this many candidates per task, including those of earlier runs."),
        ),
    ] = None,
    until: Annotated[
        str | None,
        option(
            _SEARCH,
            "--until",
            metavar="5%",
            help=_("Stop when less than this share of the model's time could still be gained."),
        ),
    ] = None,
    early_stopping: Annotated[
        int | None,
        option(
            _SEARCH,
            "--early-stopping",
            metavar="N",
            min=1,
            help=_("Stop searching a task after N trials without progress."),
        ),
    ] = None,
    ops: Annotated[
        list[str] | None,
        option(
            _SEARCH,
            "--ops",
            metavar="A,B",
            help=_("Tune only these operators, such as conv2d,matmul."),
        ),
    ] = None,
    metaschedule: Annotated[
        bool | None,
        option(
            _SEARCH,
            "--metaschedule/--no-metaschedule",
            help=_("Continue with MetaSchedule where the rules have no candidates left."),
            default=_("metaschedule"),
        ),
    ] = None,
    explain: Annotated[
        bool | None,
        option(
            _SEARCH,
            "--explain/--no-explain",
            help=_("Remove the parts of the best choices one by one to measure their worth."),
            default=_("explain"),
        ),
    ] = None,
) -> dict[str, Any]:
    return given(
        budget_s=None if budget is None else _duration("--budget", budget),
        trials=trials,
        max_trials_per_task=max_trials_per_task,
        until=None if until is None else parse_fraction(until),
        early_stopping=early_stopping,
        ops=names(ops),
        metaschedule=metaschedule,
        explain=explain,
    )


def trial(
    timeout: Annotated[
        str | None,
        option(
            _SEARCH,
            "--timeout",
            metavar="TIME",
            help=_("Limit the time to build one candidate, and to run it."),
            default=_("15s"),
        ),
    ] = None,
    repeat: Annotated[
        int | None,
        option(
            _SEARCH,
            "--repeat",
            metavar="N",
            min=1,
            help=_("Measure this many values per trial."),
            default=_("3"),
        ),
    ] = None,
    min_repeat_ms: Annotated[
        float | None,
        option(
            _SEARCH,
            "--min-repeat-ms",
            metavar="MS",
            min=0.0,
            help=_("Let each value average over at least this time, in ms."),
            default=_("20; 2 on a GPU"),
        ),
    ] = None,
    cache: Annotated[
        Literal["warm", "cold"] | None,
        option(
            _SEARCH,
            "--cache",
            help=_(
                "Measure with warm or cold caches; cold flushes the CPU caches before each call."
            ),
            default=_("warm"),
        ),
    ] = None,
) -> dict[str, Any]:
    return given(
        trial_timeout_s=None if timeout is None else _duration("--timeout", timeout),
        repeat=repeat,
        min_repeat_ms=min_repeat_ms,
        cache=cache,
    )


def farm(
    tracker: Annotated[
        str | None,
        option(
            _SEARCH,
            "--tracker",
            metavar="HOST:PORT",
            help=_("Measure on the servers of this TVM RPC tracker; see tvmscope farm."),
        ),
    ] = None,
    key: Annotated[
        str | None,
        option(
            _SEARCH, "--key", metavar="NAME", help=_("Use the tracker's servers with this key.")
        ),
    ] = None,
) -> dict[str, Any]:
    return given(tracker=tracker, key=key)


def database(
    db: Annotated[
        str | None,
        option(
            _HOW,
            "--db",
            metavar="PATH|none",
            help=_("Use this file or folder of tuning records; none uses no records."),
            default=_("tuning_logs/ and the shipped records"),
        ),
    ] = None,
) -> dict[str, Any]:
    return given(db=db)


def first(
    tune: Annotated[
        str | None,
        option(
            _HOW,
            "--tune",
            metavar="TIME",
            help=_("Tune the model first, for at most this time: 10m."),
        ),
    ] = None,
) -> dict[str, Any]:
    if tune is None:
        return {}
    return {"tune_first": True, "budget_s": _duration("--tune", tune)}


def _duration(flag: str, text: str) -> float:
    seconds = parse_duration_s(text)
    if seconds <= 0:
        raise UsageError(msg("{flag} {text}: give more than 0", flag=flag, text=text))
    return seconds
