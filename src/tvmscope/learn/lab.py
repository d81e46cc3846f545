"""Measures the reader's own function and schedule like a lesson's steps.

The file is executed, in a worker process; `user_file` describes what it defines.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tvmscope.errors import UsageError
from tvmscope.learn.explain.compare_steps import explained
from tvmscope.learn.facts import LessonRun, Study
from tvmscope.learn.setting import THREADS, Setting, known_roofs
from tvmscope.learn.step_bench import Bench, Job, opened
from tvmscope.learn.sweep import Sweep, combinations, swept
from tvmscope.machine import caches
from tvmscope.messages import msg
from tvmscope.progress import Progress, Silent

PLAIN, SCHEDULED = "plain", "scheduled"


@dataclass(frozen=True, kw_only=True)
class LabRun:
    """The result of a file: its function before and after, or a sweep of its parameters."""

    run: LessonRun
    sweep: Sweep | None = None


def lab(
    file: Path,
    setting: Setting,
    values: Mapping[str, tuple[int, ...]],
    progress: Progress | None = None,
) -> LabRun:
    """Execute the file, compile and check its function, and time it."""
    progress = progress or Silent()
    if not file.is_file():
        raise UsageError(msg("there is no file {file}", file=file))
    roofs, warnings = known_roofs(setting.target, progress)
    study = Study(
        target=setting.target,
        size=1,
        threads=setting.target.cores,
        params={},
        caches=caches.data_caches(),
        roofs=roofs,
    )
    with opened(None, file.resolve(), study) as bench:
        name, params, code = bench.outline()
        _check(file, params, values)
        if any(len(tried) > 1 for tried in values.values()):
            jobs = [_job(study, params, code, point) for point in combinations(values)]
            found = swept(name, bench, jobs, setting, values, progress, warnings)
            return LabRun(run=found.run, sweep=found)
        chosen = {key: tried[0] for key, tried in values.items()}
        scheduled = replace(_job(study, params, code, chosen), title=msg("With the schedule"))
        run = _both(name, bench, scheduled, setting, progress)
        return LabRun(run=replace(run, warnings=(*warnings, *run.warnings)))


def _both(
    name: str, bench: Bench, scheduled: Job, setting: Setting, progress: Progress
) -> LessonRun:
    plain = replace(scheduled, step=PLAIN, title=msg("As written"), code="", shown={})
    steps, disturbed = bench.measured([plain, scheduled], setting, progress)
    run = LessonRun(lesson=name, size=1, study=bench.study, steps=steps, warnings=disturbed)
    return explained(run)


def _job(study: Study, params: dict[str, int], code: str, chosen: dict[str, int]) -> Job:
    return Job(
        step=SCHEDULED,
        title=", ".join(f"{name}={value}" for name, value in chosen.items()),
        code=code,
        note=None,
        params=params,
        chosen=chosen,
        shown={**params, **chosen},
        threads=chosen.get(THREADS, study.threads),
    )


def _check(file: Path, params: dict[str, int], values: Mapping[str, tuple[int, ...]]) -> None:
    known = [*params, THREADS]
    for name in values:
        if name not in known:
            raise UsageError(
                msg(
                    "schedule() of {file} has no parameter '{name}'; it has {known}",
                    file=file,
                    name=name,
                    known=known,
                )
            )
