"""Turns candidates into trials: builds them, checks their results, and times them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from threading import Lock
from typing import Any, Self

import numpy as np

from tvmscope.core.target import Target
from tvmscope.core.tuning import Candidate, Lowering, Status, Trial, TuningTask
from tvmscope.errors import TuneError, TvmscopeError, one_line
from tvmscope.measure.worker import WorkerDied
from tvmscope.messages import Message, Text, marked, msg
from tvmscope.tuning.records.validity import identity
from tvmscope.tuning.trials.builders import Builders, Built, Job
from tvmscope.tuning.trials.kernels import Arguments, widened
from tvmscope.tuning.trials.runners import Arrays, Runner

_TOLERANCES = {"float16": 5e-2, "bfloat16": 1e-1}
"""Relative to the reference's largest value. Kernels may sum in halves: 4,608 are off by 2.6e-2."""
_TOLERANCE = 1e-4
_NO_REFERENCE = marked("no reference: {reason}")
"""The reason of trials that failed for no fault of the candidate; they are not recorded."""

Pair = tuple[TuningTask, Candidate]
_Came = tuple[TuningTask, Trial | None] | BaseException


@dataclass(frozen=True, kw_only=True)
class Setting:
    """The common settings of all trials of a run."""

    target: Target
    threads: int
    cpu: str = ""
    tvm: str = ""
    clock_hz: float | None = None
    seed: int = 0
    repeat: int = 3
    min_repeat_ms: float = 20.0
    timeout_s: float = 15.0
    """The time limit to build one candidate, and to run one."""
    weights_bytes: int = 0
    """The size of the whole model's weights: see `KernelRequest`."""
    plain_target: Target | None = None
    """The target of the unscheduled loops, if it is not the target itself: no GPU can run them."""


@dataclass(frozen=True)
class _Reference:
    args: Arguments
    outputs: Arrays


class Workshop:
    """Builders and a runner together; a `checker` if plain loops run elsewhere.

    If they share cores they take turns: a batch is built, the builders are stopped, and then it is
    measured. Otherwise each candidate is measured as soon as it is built.
    """

    def __init__(
        self,
        builders: Builders,
        runner: Runner,
        folder: Path,
        setting: Setting,
        *,
        checker: Runner | None = None,
        take_turns: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.builders = builders
        self.runner = runner
        self.checker = checker or runner
        self.folder = folder
        self.setting = setting
        self.take_turns = take_turns
        self._clock = clock
        self._plain: dict[Path, Future[Built]] = {}
        """The builds of the unscheduled functions."""
        self._references: dict[Path, _Reference | TuneError] = {}
        self._lock, self._referring = Lock(), Lock()
        # a worker process lives no longer than the thread that made it, so this one stays
        self._measuring = ThreadPoolExecutor(runner.slots, thread_name_prefix="measuring")

    def try_all(
        self, pairs: Sequence[Pair], deadline: float = float("inf")
    ) -> Iterator[tuple[TuningTask, Trial]]:
        """Yield a trial for each candidate, in the order in which they end.

        A candidate that is not measured by the deadline was not tried: there is no trial for it.
        """
        left_s = max(0.1, deadline - self._clock())
        self.builders.timeout_s = min(self.setting.timeout_s, left_s)
        jobs = [self._job(task, candidate) for task, candidate in pairs]
        done: SimpleQueue[_Came] = SimpleQueue()
        plain = [self._build_plain(file) for file in {job.function for job in jobs}]
        futures = [self.builders.submit(job) for job in jobs]
        if self.take_turns:
            wait([*plain, *futures])
            self.builders.pause()
        for (task, _), future in zip(pairs, futures, strict=True):
            then = partial(self._measure_later, task, deadline, done)
            future.add_done_callback(then)
        for _ in pairs:
            came = done.get()
            if isinstance(came, BaseException):
                raise came
            task, trial = came
            if trial is not None:
                yield task, trial

    def libraries(self, pairs: Sequence[Pair]) -> list[Built]:
        """Return each candidate's library, built if it is missing, or why there is none."""
        self.builders.timeout_s = self.setting.timeout_s
        found: list[Built | Future[Built]] = []
        for task, candidate in pairs:
            job = self._job(task, candidate)
            found.append(Built(job) if job.output.is_file() else self.builders.submit(job))
        built = [each if isinstance(each, Built) else each.result() for each in found]
        self.builders.pause()
        return built

    def trace_of(self, task: TuningTask, candidate: Candidate) -> tuple[str, list[str]]:
        """Return a candidate's trace: as JSON, and as Python calls."""
        file = Path(task.lowering_for(candidate).function)
        found = self.builders.trace_of(file, candidate, self.setting.target)
        self.builders.pause()
        return found

    def arguments(self, task: TuningTask, candidate: Candidate) -> Arguments:
        """Return the arguments of the candidate's kernel."""
        return self._reference(task.lowering_for(candidate)).args

    def check(
        self, task: TuningTask, candidate: Candidate, library: Path, seed: int
    ) -> Text | None:
        """Why a library's results are wrong on the inputs of another seed; None if they are not."""
        lowering = task.lowering_for(candidate)
        reference = self._reference(lowering)
        plain = self._build_plain(Path(lowering.function)).result()
        wanted = self.checker.outputs(plain.job.output, widened(reference.args), seed)
        got = self.runner.outputs(library, reference.args, seed)
        return difference(got, wanted, task.tolerance or tolerance(reference.args))

    def trial(self, task: TuningTask, candidate: Candidate, status: Status, **more: Any) -> Trial:
        """Return a trial to record, dated now."""
        s = self.setting
        rule = None if candidate.trace is not None else task.lowering_for(candidate).rule
        return Trial(
            workload=task.key,
            candidate=candidate,
            target=s.target,
            threads=s.threads,
            cpu=s.cpu,
            clock_hz=s.clock_hz,
            tvm=s.tvm,
            seed=s.seed,
            date=datetime.now(UTC).isoformat(timespec="seconds"),
            status=status,
            **identity(rule),
            **more,
        )

    def close(self) -> None:
        """End every process."""
        self.builders.close()
        self.runner.close()
        self.checker.close()
        self._measuring.shutdown(wait=False, cancel_futures=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _job(self, task: TuningTask, candidate: Candidate) -> Job:
        function = Path(task.lowering_for(candidate).function)
        return Job(
            function=function,
            candidate=candidate,
            target=self.setting.target,
            output=self.folder / function.stem / f"{candidate.id}.so",
        )

    def _build_plain(self, function: Path) -> Future[Built]:
        """Build the unscheduled function once, even for several threads. A failure is tried again:
        near a deadline there is little time to build."""
        with self._lock:
            known = self._plain.get(function)
            if known is None or (known.done() and known.result().failure):
                job = Job(
                    function=function,
                    candidate=None,
                    target=self.setting.plain_target or self.setting.target,
                    output=self.folder / function.stem / "plain.so",
                )
                self._plain[function] = self.builders.submit(job)
            return self._plain[function]

    def _measure_later(
        self,
        task: TuningTask,
        deadline: float,
        done: SimpleQueue[_Came],
        future: Future[Built],
    ) -> None:
        def work() -> None:
            try:
                trial = self._measure(task, future.result())
                over = self._clock() > deadline and trial.status != "ok"
                done.put((task, None if over else trial))
            except BaseException as e:  # reported in the thread that waits
                done.put(e)

        def too_late() -> None:
            done.put((task, None))

        self._measuring.submit(too_late if self._clock() > deadline else work)

    def _measure(self, task: TuningTask, built: Built) -> Trial:
        candidate = built.job.candidate
        assert candidate is not None
        if built.failure is not None:
            return self.trial(task, candidate, "failed", reason=built.failure)
        s = self.setting
        try:
            reference = self._reference(task.lowering_for(candidate))
            outputs = self.runner.outputs(built.job.output, reference.args, s.seed)
            most = task.tolerance or tolerance(reference.args)
            if problem := difference(outputs, reference.outputs, most):
                return self.trial(task, candidate, "wrong", reason=problem)
            seconds = self.runner.measure(
                built.job.output,
                reference.args,
                seed=s.seed,
                repeat=s.repeat,
                min_repeat_ms=s.min_repeat_ms,
                timeout_s=s.timeout_s,
            )
        except TuneError as e:
            return self.trial(task, candidate, "failed", reason=e.message)
        except TvmscopeError as e:
            reason = e.reason if isinstance(e, WorkerDied) else one_line(e)
            return self.trial(
                task, candidate, "failed", reason=msg("running: {reason}", reason=reason)
            )
        return self.trial(task, candidate, "ok", seconds=seconds)

    def _reference(self, lowering: Lowering) -> _Reference:
        """Return the unscheduled function's results; computed once, and so is a failure, unless
        there was little time for it."""
        function = Path(lowering.function)
        with self._referring:
            if function not in self._references:
                try:
                    self._references[function] = self._compute(function)
                except TvmscopeError as e:
                    failure = TuneError(Message(_NO_REFERENCE, {"reason": one_line(e)}))
                    if self.builders.timeout_s < self.setting.timeout_s:
                        raise failure from e
                    self._references[function] = failure
            found = self._references[function]
        if isinstance(found, TuneError):
            raise found
        return found

    def _compute(self, function: Path) -> _Reference:
        built = self._build_plain(function).result()
        if built.failure is not None:
            raise TuneError(built.failure)
        args = self.builders.arguments(function)
        if self.take_turns:
            self.builders.pause()
        outputs = self.checker.outputs(built.job.output, widened(args), self.setting.seed)
        return _Reference(args, outputs)


def lacks_reference(trial: Trial) -> bool:
    """Whether it failed because there was nothing to check it against."""
    return isinstance(trial.reason, Message) and trial.reason.id == _NO_REFERENCE


def tolerance(args: Arguments) -> float:
    """Return the allowed error of a kernel."""
    return max(_TOLERANCES.get(dtype, _TOLERANCE) for _, dtype in args)


def difference(outputs: Arrays, reference: Arrays, most: float = _TOLERANCE) -> Text | None:
    """Why outputs are not those of the reference; None where they are close enough."""
    if [a.shape for a in outputs] != [b.shape for b in reference]:
        return msg(
            "{count} outputs of other shapes than the reference's {wanted}",
            count=len(outputs),
            wanted=len(reference),
        )
    for number, (got, wanted) in enumerate(zip(outputs, reference, strict=True)):
        with np.errstate(over="ignore"):  # a value that does not fit a half is infinite for both
            a, b = (x.astype(got.dtype).astype(np.float64) for x in (got, wanted))
        if not np.array_equal(np.isfinite(a), np.isfinite(b)):
            return msg(
                "output {number}: not finite where the reference is, or the other way round",
                number=number,
            )
        scale = np.max(np.abs(b), initial=0.0, where=np.isfinite(b))
        error = np.max(np.abs(a - b), initial=0.0, where=np.isfinite(b)) / max(scale, 1e-30)
        if error > most:
            return msg(
                "output {number}: differs by {error:.1e} of the reference's largest value",
                number=number,
                error=float(error),
            )
    return None
