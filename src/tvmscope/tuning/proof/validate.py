"""Measures the best candidates again, in turns with the untuned kernel, and checks them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Self

from tvmscope.core.options import MeasureOptions
from tvmscope.core.stats import ratio_interval
from tvmscope.core.tuning import Candidate, Status, Trial, TuningTask
from tvmscope.errors import TvmscopeError, one_line
from tvmscope.measure.interleave import Lane, Subject, interleave
from tvmscope.measure.worker import Worker, WorkerDied
from tvmscope.messages import Text
from tvmscope.tuning.trials.builders import Built
from tvmscope.tuning.trials.kernels import LOAD, Arguments, KernelRequest
from tvmscope.tuning.trials.runners import START_TIMEOUT_S, Runner
from tvmscope.tuning.trials.workshop import Workshop

WORTH = 1.01
"""The whole interval of the speed-up must be above this for a candidate to be chosen."""
DURATION_S = 0.4
"""The target time of each kernel over all rounds."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The result of a candidate's second measurement."""

    task: TuningTask
    trial: Trial
    """The trial to record, if the model with it is accepted."""
    speedup: float | None = None
    interval: tuple[float, float] | None = None

    @property
    def faster(self) -> bool:
        """Whether the candidate may be chosen."""
        return self.interval is not None and self.interval[0] >= WORTH

    @property
    def slower(self) -> bool:
        """Whether the candidate is certainly not worth it."""
        return self.trial.status != "ok" or (self.interval is not None and self.interval[1] < WORTH)


class Validator:
    """Has one warm process per compared kernel; each is stopped while it waits for its turn."""

    def __init__(self, workshop: Workshop, measure: MeasureOptions) -> None:
        self.workshop = workshop
        self.measure = measure
        self._workers: dict[int, Worker] = {}

    def validate(
        self, task: TuningTask, candidates: Sequence[Candidate], base: Candidate | None = None
    ) -> list[Verdict]:
        """Return a verdict for each candidate that could be compared with `base` (untuned)."""
        base = base or Candidate()
        first, *others = self.workshop.libraries([(task, c) for c in (base, *candidates)])
        if first.failure is not None:
            return []
        standard = self._lane(0, task, base, first.job.output)
        if standard is None:
            return []
        verdicts, lanes = [], [standard]
        measured: list[tuple[Candidate, Lane]] = []
        for number, (candidate, built) in enumerate(zip(candidates, others, strict=True), start=1):
            try:
                status, problem = self._problem(task, candidate, built)
            except TvmscopeError:  # no reference, or the farm is gone: no verdict
                continue
            if problem is not None:
                trial = self._trial(task, candidate, status, reason=problem)
                verdicts.append(Verdict(task=task, trial=trial))
                continue
            if lane := self._lane(number, task, candidate, built.job.output):
                measured.append((candidate, lane))
                lanes.append(lane)
        self._quiet()
        for _ in interleave(lanes, self.measure):
            pass
        self._drop_failed(lanes)
        return verdicts + [self._verdict(task, c, lanes[0], lane) for c, lane in measured]

    def close(self) -> None:
        """End the processes."""
        for worker in self._workers.values():
            worker.kill()
        self._workers.clear()

    def _drop_failed(self, lanes: Sequence[Lane]) -> None:
        """Drop processes that died, or whose CUDA context has an error, before the next kernel."""
        failed = {id(lane.subject) for lane in lanes if lane.failure is not None}
        for number, worker in list(self._workers.items()):
            if id(worker) in failed:
                self._workers.pop(number).kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _problem(
        self, task: TuningTask, candidate: Candidate, built: Built
    ) -> tuple[Status, Text | None]:
        """What is wrong with it: other inputs than those of the search must come out right too."""
        if built.failure is not None:
            return "failed", built.failure
        try:
            seed = self.measure.seed + 1
            return "wrong", self.workshop.check(task, candidate, built.job.output, seed)
        except WorkerDied as e:
            return "failed", e.reason

    def _lane(
        self, number: int, task: TuningTask, candidate: Candidate, library: Path
    ) -> Lane | None:
        """Return the loaded kernel; None if loading fails. It was run and found right before, so
        that is no verdict on it."""
        name, s = candidate.id if number else "base", self.workshop.setting
        try:
            args = self.workshop.arguments(task, candidate)
            if not self.workshop.runner.local:
                return Lane(name, _Remote(self.workshop, library, args))
            request = KernelRequest(
                library=library,
                args=args,
                seed=s.seed,
                threads=s.threads,
                device=s.target.device,
                weights_bytes=s.weights_bytes,
            )
            worker = self._worker(number)
            worker.load(LOAD, request)
        except TvmscopeError:
            if number in self._workers:  # its state is useless for the next kernel
                self._workers.pop(number).kill()
            return None
        worker.pause()
        return Lane(name, worker)

    def _worker(self, number: int) -> Worker:
        """Return the process for a slot; a new one if the previous one has ended."""
        worker = self._workers.get(number)
        if worker is None or not worker.alive:
            env = {"TVM_NUM_THREADS": str(self.workshop.setting.threads)}
            worker = Worker("validator", env=env, timeout_s=START_TIMEOUT_S)
            self._workers[number] = worker
        return worker

    def _quiet(self) -> None:
        self.workshop.builders.pause()
        self.workshop.runner.pause()

    def _trial(self, task: TuningTask, candidate: Candidate, status: Status, **more: Any) -> Trial:
        return self.workshop.trial(task, candidate, status, stage="validated", **more)

    def _verdict(self, task: TuningTask, candidate: Candidate, base: Lane, lane: Lane) -> Verdict:
        failure = lane.failure or base.failure
        if failure is not None:
            trial = self._trial(task, candidate, "failed", reason=one_line(failure))
            return Verdict(task=task, trial=trial)
        found = ratio_interval(base.rounds_s, lane.rounds_s)
        known = found.lo is not None and found.hi is not None
        trial = self._trial(
            task,
            candidate,
            "ok",
            seconds=tuple(median(r) for r in lane.rounds_s),
            baseline_s=tuple(median(r) for r in base.rounds_s),
        )
        return Verdict(
            task=task,
            trial=trial,
            speedup=found.ratio,
            interval=(float(found.lo or 0), float(found.hi or 0)) if known else None,
        )


class _Remote(Subject):
    """A kernel on a device of a farm, timed through its runner."""

    def __init__(self, workshop: Workshop, library: Path, args: Arguments) -> None:
        self._runner: Runner = workshop.runner
        self._setting = workshop.setting
        self._library, self._args = library, args

    def time(self, n: int, loops: int = 1, cold: bool = False) -> list[float]:
        s = self._setting
        return list(
            self._runner.measure(
                self._library,
                self._args,
                seed=s.seed,
                repeat=n,
                min_repeat_ms=0.0 if loops == 1 else s.min_repeat_ms,
                timeout_s=s.timeout_s,
            )
        )

    def time_device(self, n: int) -> list[float]:
        return []

    def pause(self) -> None: ...

    def resume(self) -> None: ...


def best(verdicts: Sequence[Verdict]) -> Verdict | None:
    """Return the fastest one that may be chosen."""
    return max((v for v in verdicts if v.faster), key=lambda v: v.speedup or 0.0, default=None)
