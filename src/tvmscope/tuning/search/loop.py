"""The search: tries candidates of the task with the most to gain, until a limit is reached."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tvmscope.core.tuning import Candidate, Trial, TuningTask
from tvmscope.messages import msg, msgn
from tvmscope.tuning.plan import TRIAL_S, PlannedTask
from tvmscope.tuning.records.database import same_target
from tvmscope.tuning.records.validity import outdated
from tvmscope.tuning.search.elsewhere import promising
from tvmscope.tuning.search.metaschedule import Proposer
from tvmscope.tuning.search.proposals import next_of
from tvmscope.tuning.search.state import UNTUNED, State
from tvmscope.tuning.trials.workshop import Pair, Workshop, lacks_reference

SECOND_LAYER = 2
"""The number of halvings of MetaSchedule's priority after a rule's turn: from the plain loops it
rarely comes near a rule's schedule."""

_ALL_TRIED = msg("every candidate was tried")
_PER_TASK = 8
"""The least candidates of a task that are tried together: with many cores, a batch has those of
several tasks, so that a short search reaches all that matter."""
_UNTUNED_SHARE = 0.25
"""The share of the time within which all untuned kernels are measured first."""


class Records(Protocol):
    """The part of the database that the search needs."""

    def append(self, trial: Trial, *, function: str | None = None) -> None: ...

    def trials(self, workload: str) -> Iterable[Trial]: ...


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The limits of the search."""

    deadline: float = float("inf")
    """The end, by the search's clock."""
    trials: int | None = None
    """New trials in this run."""
    per_task: int | None = None
    """Trials per task, including those of earlier runs."""
    until: float = 0.0
    """Stop when the possible gain is a smaller share of the model's time."""
    early_stopping: int | None = None
    """Leave a task after this many trials without progress."""


class Search:
    """Assigns batches of trials to tasks; every trial is recorded as soon as it ends."""

    def __init__(
        self,
        planned: Sequence[PlannedTask],
        workshop: Workshop,
        records: Records,
        limits: Limits,
        *,
        elsewhere: Sequence[Records] = (),
        proposer: Proposer | None = None,
        batch: int = 8,
        rest_s: float = 0.0,
        on_trial: Callable[[Search, State], None] = lambda *_: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.workshop = workshop
        self.records = records
        self.limits = limits
        self._elsewhere = elsewhere
        """Further records, whose trials of other machines show what to try first."""
        self.proposer = proposer
        self.batch = batch
        self.rest_s = rest_s
        """The model's time outside of the tasks."""
        self.new = 0
        self._trying_s = 0.0
        self.states = {p.task.key: State(p) for p in planned}
        self._on_trial = on_trial
        self._clock = clock
        self._began = clock()
        for state in self.states.values():
            self._recall(state)
            self._change_layer(state)

    @property
    def elapsed_s(self) -> float:
        return self._clock() - self._began

    @property
    def model_s(self) -> float:
        """The model's predicted time now."""
        return self.rest_s + sum(state.predicted_s for state in self.states.values())

    def run(self) -> None:
        """Search until a limit is reached or nothing is left to try; may be called again."""
        try:
            self._measure_untuned()
            while not self._finished() and (states := self._next()):
                self._advance(states)
        finally:
            for state in self.states.values():
                state.mark(self.elapsed_s)

    def _measure_untuned(self) -> None:
        """Measure every untuned kernel before the first candidate, if there is enough time.

        Otherwise each is measured with the first candidates of its task, so that a short search of
        many tasks tries candidates of those with the most to gain.
        """
        left = [state.task for state in self.states.values() if UNTUNED not in state.tried]
        while left and self._clock() < self.limits.deadline:
            left_s = self.limits.deadline - self._clock()
            if len(left) * self.trial_s > _UNTUNED_SHARE * left_s:
                return
            self._try([(task, Candidate()) for task in left[: self.batch]])
            left = left[self.batch :]

    @property
    def trial_s(self) -> float:
        """The measured time of one trial in this run; an assumption before the first one."""
        return self._trying_s / self.new if self.new else TRIAL_S

    def _fitting(self) -> int:
        """Return how many trials of a batch can be measured in time; at least one."""
        fitting = (self.limits.deadline - self._clock()) / self.trial_s
        return max(1, int(min(self.batch, fitting)))

    def _recall(self, state: State) -> None:
        """Add earlier trials on the same machine, which are not repeated; those of others show
        what to try first."""
        s = self.workshop.setting
        others: list[Trial] = []
        for trial in self.records.trials(state.task.key):
            same = trial.threads == s.threads and trial.tvm == s.tvm and trial.cpu == s.cpu
            same = same and same_target(trial.target, s.target)
            if not same:
                others.append(trial)
            elif trial.stage == "search" and outdated(trial) is None:
                state.add(trial, None)
        for records in self._elsewhere:
            others += records.trials(state.task.key)
        state.first = promising(others)

    def _finished(self) -> bool:
        left = sum(s.headroom_s for s in self.states.values() if s.over is None)
        return (
            self._clock() >= self.limits.deadline
            or (self.limits.trials is not None and self.new >= self.limits.trials)
            or left < self.limits.until * self.model_s
        )

    def _next(self) -> list[State]:
        """Return the tasks with the most to gain, as many as fill a batch; each stale batch halves
        a task's priority. MetaSchedule proposes for one task at a time."""
        left = [state for state in self.states.values() if not self._is_over(state)]
        left.sort(key=lambda s: s.headroom_s * 0.5**s.stale, reverse=True)
        if left and left[0].second_layer:
            return left[:1]
        return [s for s in left if not s.second_layer][: max(1, self._fitting() // _PER_TASK)]

    def _is_over(self, state: State) -> bool:
        stop, most = self.limits.early_stopping, self.limits.per_task
        if state.over is None and stop is not None and state.without_progress >= stop:
            state.over = msg("no progress in {count} trials", count=state.without_progress)
        if state.over is None and most is not None and len(state.tried) >= most:
            state.over = msgn("{count} trial", "{count} trials", len(state.tried))
        return state.over is not None

    def _advance(self, states: Sequence[State]) -> None:
        """Run one batch, of which each task has the same share."""
        before = [state.best_s for state in states]
        share = max(1, self._fitting() // len(states))
        if states[0].second_layer:  # then it is alone
            self._try(self._untuned(states[0]))
            self._evolve(states[0], self._allowed(states[0], share))
        else:
            self._try([pair for state in states for pair in self._batch(state, share)])
        for state, best_s in zip(states, before, strict=True):
            state.stale = 0 if state.improved(best_s) else state.stale + 1
            self._change_layer(state)

    def _batch(self, state: State, share: int) -> list[Pair]:
        """Return the next candidates of a rule's own space."""
        first = self._untuned(state)
        tried, count = state.tried | {UNTUNED}, self._allowed(state, share) - len(first)
        candidates = next_of(state.task.candidates, tried, state.times, count, state.first)
        return [*first, *((state.task, candidate) for candidate in candidates)]

    def _untuned(self, state: State) -> list[Pair]:
        return [] if UNTUNED in state.tried else [(state.task, Candidate())]

    def _evolve(self, state: State, count: int) -> None:
        """Try one generation of MetaSchedule's candidates, and report the results to it."""
        assert self.proposer is not None
        lowering = state.seed_lowering
        first_layer = state.first_layer(lowering)
        found = self.proposer.propose(state.task, lowering, state.traces(lowering), first_layer)
        self.proposer.pause()
        fresh = [candidate for candidate in found if candidate.id not in state.tried]
        self._try([(state.task, candidate) for candidate in fresh[:count]])
        self.proposer.tell(state.task, state.traces(lowering))
        if not fresh:
            state.over = self.proposer.failures.get(state.task.key, _ALL_TRIED)

    def _change_layer(self, state: State) -> None:
        """Switch from the rule's own space, once exhausted, to MetaSchedule's, if requested."""
        space = state.task.candidates
        if state.second_layer or any(c.id not in state.tried for c in space):
            return
        if self.proposer is None or not state.task.loops:
            state.over = state.over or _ALL_TRIED
            return
        state.second_layer = True
        state.stale += SECOND_LAYER if len(space) > 1 else 0

    def _allowed(self, state: State, share: int) -> int:
        rest = [share]
        if self.limits.trials is not None:
            rest.append(self.limits.trials - self.new)
        if self.limits.per_task is not None:
            rest.append(self.limits.per_task - len(state.tried))
        return max(1, min(rest))

    def _try(self, pairs: Sequence[Pair]) -> None:
        if self.limits.trials is not None:
            pairs = pairs[: max(0, self.limits.trials - self.new)]
        began = self._clock()
        before_s = self._trying_s
        for task, trial in self.workshop.try_all(pairs, self.limits.deadline):
            state = self.states[task.key]
            if not lacks_reference(trial):
                self.records.append(trial, function=_function(task, trial))
            state.add(trial, self.elapsed_s)
            self.new += 1
            self._trying_s = before_s + self._clock() - began
            self._on_trial(self, state)


def _function(task: TuningTask, trial: Trial) -> str | None:
    """Return the kernel that a trace belongs to: other tools need it to use the record."""
    if trial.candidate.trace is None:
        return None
    return Path(task.lowering_for(trial.candidate).function).read_text(encoding="utf-8")
