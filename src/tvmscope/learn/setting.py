"""What the reader chose for a lesson, checked, and the machine that the lesson runs on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tvmscope.core.options import MeasureOptions
from tvmscope.core.profile import Roof
from tvmscope.core.target import Target
from tvmscope.errors import TvmscopeError, UsageError, one_line
from tvmscope.learn.facts import Study
from tvmscope.learn.lesson import Lesson
from tvmscope.machine import caches
from tvmscope.measure.remote import remote
from tvmscope.measure.worker import run_within
from tvmscope.messages import Text, msg
from tvmscope.progress import Progress
from tvmscope.stages.places import cache_folder

if TYPE_CHECKING:
    import tvmscope.profiling.roofs

_ROOFS = remote(lambda: tvmscope.profiling.roofs.measure)
_ROOFS_TIMEOUT_S = 300.0
THREADS = "threads"
"""A parameter of every lesson: the number of threads of TVM's pool."""
DURATION_S = 0.7
"""The time for each step over all rounds; a lesson of ten steps takes half a minute."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """The reader's settings."""

    target: Target
    size: int | None = None
    chosen: dict[str, int] = field(default_factory=dict)
    measure: MeasureOptions = field(
        default_factory=lambda: MeasureOptions(duration_s=DURATION_S, min_rounds=6)
    )
    live: bool = False
    """Whether exhibits are measured now (`--run`) or stored ones shown."""
    counters: bool = True


def study_of(lesson: Lesson, setting: Setting, roofs: tuple[Roof, ...]) -> Study:
    """Return the machine and the parameters; the reader's override the lesson's."""
    params = {p.name: p.value(setting.target) for p in lesson.parameters}
    return Study(
        target=setting.target,
        size=lesson.size if setting.size is None else setting.size,
        threads=setting.chosen.get(THREADS, setting.target.cores),
        params={**params, **setting.chosen},
        caches=caches.data_caches(),
        roofs=roofs,
    )


def check_parameters(lesson: Lesson, setting: Setting) -> None:
    """Raise if a parameter is unknown to all steps."""
    known = [p.name for p in lesson.parameters] + [THREADS]
    for name in setting.chosen:
        if name not in known:
            raise UsageError(
                msg(
                    "the lesson {lesson} has no parameter '{name}'; it has {known}",
                    lesson=lesson.name,
                    name=name,
                    known=known,
                )
            )
    if setting.size is not None and setting.size < 1:
        raise UsageError(msg("--size is a whole number over 0"))


def known_roofs(target: Target, progress: Progress) -> tuple[tuple[Roof, ...], tuple[Text, ...]]:
    """Return the machine's roofs, cached or measured now; none, with the reason, if it fails."""
    progress.stage(msg("roofs"))
    try:
        return run_within(_ROOFS_TIMEOUT_S, _ROOFS, target, cache_folder()), ()
    except TvmscopeError as e:
        text = msg(
            "the machine's roofs are unknown, so shares of them are left out: {reason}",
            reason=one_line(e),
        )
        return (), (text,)
