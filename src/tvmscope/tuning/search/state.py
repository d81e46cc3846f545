"""The state of a search for one task."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median

from tvmscope.core.tuning import Candidate, Lowering, Trial, TuningPoint, TuningTask
from tvmscope.messages import Text
from tvmscope.tuning.plan import PlannedTask

BETTER = 0.99
"""A best time below this share of the previous one counts as progress."""
UNTUNED = Candidate().id


@dataclass
class State:
    """A task and its trials."""

    planned: PlannedTask
    times: dict[str, float] = field(default_factory=dict)
    """Median seconds of the valid candidates, by id."""
    candidates: dict[str, Candidate] = field(default_factory=dict)
    """The valid candidates, by id."""
    traced: list[Trial] = field(default_factory=list)
    """Trials of traces, including failed ones."""
    tried: set[str] = field(default_factory=set)
    first: list[str] = field(default_factory=list)
    """Candidates that were fast on other machines, by id: they are tried first."""
    earlier: int = 0
    """Trials of earlier runs."""
    failed: int = 0
    wrong: int = 0
    points: list[TuningPoint] = field(default_factory=list)
    last_s: float | None = None
    without_progress: int = 0
    stale: int = 0
    """Batches in a row without progress."""
    second_layer: bool = False
    over: Text | None = None
    """Why it gets no further trials."""

    @property
    def task(self) -> TuningTask:
        return self.planned.task

    @property
    def untuned_s(self) -> float | None:
        """The time of one call, measured alone."""
        return self.times.get(UNTUNED)

    @property
    def best_s(self) -> float | None:
        """The best time of one call, measured alone; the untuned kernel counts, too."""
        return min(self.times.values(), default=None)

    @property
    def best(self) -> Candidate:
        """The fastest candidate measured alone; the untuned kernel if nothing is valid yet."""
        found = min(self.times, key=self.times.__getitem__, default=None)
        return Candidate() if found is None else self.candidates[found]

    @property
    def predicted_s(self) -> float:
        """The predicted time of its calls in the model: the profiled time, scaled by the gain."""
        if self.untuned_s is None or self.best_s is None:
            return self.planned.total_s
        return self.planned.total_s * self.best_s / self.untuned_s

    @property
    def headroom_s(self) -> float:
        """The saving per run of the model that its roof still allows."""
        return max(0.0, self.predicted_s - self.planned.least_s)

    def fastest(self, count: int) -> list[Candidate]:
        """Return the best candidates that beat the untuned one, by the search's own times."""
        limit = self.times.get(UNTUNED, float("inf"))
        ids = [i for i in self.times if i != UNTUNED and self.times[i] < limit]
        return [self.candidates[i] for i in sorted(ids, key=self.times.__getitem__)[:count]]

    @property
    def seed_lowering(self) -> Lowering:
        """The lowering of the rule's best candidate, from which MetaSchedule also starts."""
        rule = [i for i, candidate in self.candidates.items() if candidate.trace is None]
        best = min(rule, key=self.times.__getitem__, default=None)
        return self.task.lowering_for(Candidate() if best is None else self.candidates[best])

    def first_layer(self, lowering: Lowering) -> list[tuple[Candidate, float]]:
        """Return the rule's candidates on a lowering with their seconds, the fastest first."""
        found = [
            (candidate, self.times[i])
            for i, candidate in self.candidates.items()
            if candidate.trace is None and self.task.lowering_for(candidate) == lowering
        ]
        return sorted(found, key=lambda pair: pair[1])

    def traces(self, lowering: Lowering) -> dict[str, tuple[float, ...] | None]:
        """Return seconds of the traces that were tried on a lowering; None if they failed."""
        return {
            str(trial.candidate.trace): trial.seconds if trial.status == "ok" else None
            for trial in self.traced
            if trial.candidate.params == lowering.params
        }

    def add(self, trial: Trial, elapsed_s: float | None) -> None:
        """Add a trial; `elapsed_s` is None for one of an earlier run."""
        before = self.best_s
        self.tried.add(trial.candidate.id)
        if trial.candidate.trace is not None:
            self.traced.append(trial)
        if trial.status == "ok":
            self.last_s = self.times[trial.candidate.id] = median(trial.seconds)
            self.candidates[trial.candidate.id] = trial.candidate
        if elapsed_s is None:
            self.earlier += 1
            return
        self.failed += trial.status == "failed"
        self.wrong += trial.status == "wrong"
        self.without_progress = 0 if self.improved(before) else self.without_progress + 1
        if self.best_s is not None and self.best_s != before:
            self.mark(elapsed_s)

    def improved(self, before: float | None) -> bool:
        """Whether the best time is clearly shorter than before."""
        return self.best_s is not None and (before is None or self.best_s < before * BETTER)

    def mark(self, elapsed_s: float) -> None:
        """Record the current progress."""
        if self.best_s is not None:
            now = TuningPoint(trial=len(self.tried), elapsed_s=elapsed_s, best_s=self.best_s)
            self.points.append(now)
