"""What a tuning run would have brought had it stopped after N trials.

    tvmscope tune resnet18 --budget 10m --db resnet18.jsonl -o resnet18-tuning
    python benchmarks/trials.py resnet18-tuning [more sessions] [--db FILE]

The session says what each kernel takes in the model, the database has every trial in order. The
prediction after N trials is the untuned model's time with each kernel's share scaled by the best
time so far over the untuned one, both as the search measured them: the best of many short
measurements, so it promises more than holds. What holds is the last column of the last table, the
tuned model beside the untuned one. Give each model a database of its own: trials of the same kernel
for another model count as well.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from statistics import median

from tvmscope.core.session import Session, load
from tvmscope.core.tuning import Candidate, Trial
from tvmscope.quantities import format_s
from tvmscope.tuning.records.database import read

SHARES = (0.5, 0.9, 0.99)
"""Of the whole predicted gain: after how many trials is so much of it there?"""
UNTUNED = Candidate().id


@dataclass(frozen=True)
class Step:
    """How far a run was after so many trials."""

    trials: int
    minutes: float
    model_s: float


def curve(session: Session, trials: list[Trial]) -> list[Step]:
    """A step for each trial; the first one is the untuned model."""
    tasks = {task.workload: task for task in session.tuning if task.untuned_s is not None}
    whole_s = session.profiles[0].end_to_end_s
    mine = [t for t in trials if t.workload in tasks and t.stage == "search"]
    best: dict[str, float] = {}
    untuned: dict[str, float] = {}
    steps = [Step(0, 0.0, whole_s)]
    for number, trial in enumerate(mine, start=1):
        if trial.status == "ok":
            time_s = median(trial.seconds)
            best[trial.workload] = min(time_s, best.get(trial.workload, time_s))
            if trial.candidate.id == UNTUNED:
                untuned[trial.workload] = time_s
        saved_s = sum(tasks[w].total_s * (1 - best[w] / untuned[w]) for w in untuned)
        minutes = (_when(trial) - _when(mine[0])) / 60
        steps.append(Step(number, minutes, whole_s - saved_s))
    return steps


def _when(trial: Trial) -> float:
    return datetime.fromisoformat(trial.date).timestamp()


def database_of(session: Session) -> Path:
    """The file that the run has written, as its tuned row names it."""
    for row in session.results:
        if row.task.variant.tuning is not None:
            return Path(row.task.variant.tuning)
    raise SystemExit(f"{session.model.name}: no tuned row names the database; give --db FILE")


def shown(steps: list[Step]) -> list[Step]:
    """After 0, 16, 32, 64 ... trials, and the last."""
    marks = {0, *(16 << n for n in range(16))}
    return [*(step for step in steps[:-1] if step.trials in marks), steps[-1]]


def print_curve(session: Session, steps: list[Step]) -> None:
    print(f"\n{session.model.name}, {session.targets[0].label}\n")
    print("| trials | minutes of search | predicted | against untuned |\n|---|---|---|---|")
    for step in shown(steps):
        gain = steps[0].model_s / step.model_s
        print(f"| {step.trials} | {step.minutes:.1f} | {format_s(step.model_s)} | {gain:.3f}x |")


def summary(session: Session, steps: list[Step]) -> str:
    """One row: how much there was to gain, and how soon it was there."""
    tasks = [task for task in session.tuning if task.untuned_s is not None]
    whole_s = steps[0].model_s - steps[-1].model_s
    soon = [
        next(str(s.trials) for s in steps if steps[0].model_s - s.model_s >= share * whole_s)
        for share in SHARES
    ]
    measured = "nothing was used"
    if session.comparisons:
        found = session.comparisons[0]
        low, high = found.ci95 or (float("nan"),) * 2
        measured = f"{found.speedup:.3f}x [{low:.3f}, {high:.3f}] {found.verdict}"
    cells = (
        session.model.name, format_s(steps[0].model_s), len(tasks), steps[-1].trials,
        f"{steps[0].model_s / steps[-1].model_s:.3f}x", *soon, measured,
    )  # fmt: skip
    return f"| {' | '.join(map(str, cells))} |"


def main() -> None:
    """Print a curve for each session, then a row for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sessions", nargs="+", type=Path, help="folders that tvmscope tune wrote")
    parser.add_argument("--db", type=Path, help="the database, where the session names none")
    args = parser.parse_args()
    rows = []
    for folder in args.sessions:
        session = load(folder)
        if not session.profiles:
            raise SystemExit(f"{folder}: no session of tvmscope tune")
        steps = curve(session, list(read(args.db or database_of(session))))
        print_curve(session, steps)
        rows.append(summary(session, steps))
    shares = " | ".join(f"{share:.0%} of it after" for share in SHARES)
    print(f"\n| model | untuned | tasks | trials | predicted in all | {shares} | as measured |")
    print("|---" * (6 + len(SHARES)) + "|")
    print("\n".join(rows))


if __name__ == "__main__":
    main()
