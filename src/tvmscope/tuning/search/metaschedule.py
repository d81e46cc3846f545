"""The second layer of the search: candidates that MetaSchedule proposes, as traces."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from tvmscope.core.target import Target
from tvmscope.core.tuning import Candidate, Lowering, TuningTask
from tvmscope.errors import TvmscopeError
from tvmscope.measure.remote import here
from tvmscope.measure.worker import Worker, WorkerDied
from tvmscope.messages import Text
from tvmscope.tuning.search import evolution
from tvmscope.tuning.search.evolution import Begin, FirstLayer, Times

_TIMEOUT_S = 300.0
"""The first generation of a GPU kernel takes a minute on two slow cores."""
_PROPOSE, _TELL = here(evolution.propose), here(evolution.tell)


class Proposer:
    """Evolutionary search in one process for all tasks, started by the first request.

    It uses all cores, so it runs while nothing is measured. A search that dies or raises is over:
    its task gets no further proposals.
    """

    def __init__(self, target: Target, *, seed: int, count: int, threads: int) -> None:
        self.target = target
        self.seed = seed
        self.count = count
        self.threads = threads
        self.failures: dict[str, Text] = {}
        """Why a task's search ended, by task."""
        self.remarks: dict[str, Text] = {}
        """Why a task's search did without some of what its rule had found, by task."""
        self._worker: Worker | None = None

    def propose(
        self, task: TuningTask, lowering: Lowering, known: Times, first_layer: FirstLayer = ()
    ) -> list[Candidate]:
        """Return the next generation for a task, on one of its lowerings.

        `known` are its trials there so far, seconds by trace; `first_layer` its rule's candidates.
        """
        if task.key in self.failures:
            return []
        begin = Begin(
            file=Path(lowering.function),
            target=self.target,
            seed=self.seed,
            count=self.count,
            threads=self.threads,
            known=dict(known),
            first_layer=tuple(first_layer),
        )
        try:
            found = self._started().call(_PROPOSE, task.key, begin)
        except TvmscopeError as e:
            self._over(task, e)
            return []
        if found.remark is not None:
            self.remarks[task.key] = found.remark
        return [Candidate(params=lowering.params, trace=trace) for trace in found.traces]

    def tell(self, task: TuningTask, times: Times) -> None:
        """Report the results of the last generation."""
        if self._worker is None or task.key in self.failures:
            return
        try:
            self._worker.call(_TELL, task.key, dict(times))
            self._worker.pause()
        except TvmscopeError as e:
            self._over(task, e)

    def _over(self, task: TuningTask, error: TvmscopeError) -> None:
        self.failures[task.key] = error.message
        if isinstance(error, WorkerDied):
            self._worker = None  # the other tasks start again, from their records

    def _started(self) -> Worker:
        if self._worker is None:
            env = {"TVM_NUM_THREADS": str(self.threads)}
            self._worker = Worker("metaschedule", env=env, timeout_s=_TIMEOUT_S)
        return self._worker

    def pause(self) -> None:
        """Stop it during a measurement."""
        if self._worker is not None:
            self._worker.pause()

    def close(self) -> None:
        """End the process, if there is one."""
        if self._worker is not None:
            self._worker.kill()
            self._worker = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
