"""The page's content about a tuning run: best times over the search, and the choices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tvmscope.core.diagnosis.facts import RuleFacts
from tvmscope.core.session import Session
from tvmscope.core.tuning import TunedTask
from tvmscope.messages import _, marked
from tvmscope.quantities import format_s
from tvmscope.report.escape import NAME_LIMIT, clean
from tvmscope.report.sections import choice

MOST_LINES = 10
"""Lines of one figure: those of the heaviest tasks."""
WORK = marked(
    "GFLOP/s are based on the operations of the untuned kernel, so that they compare like times; "
    "a kernel that computes less, such as Winograd's, may show more than the machine's peak."
)


@dataclass(frozen=True)
class TaskRow:
    """A task that was searched, ready to be printed."""

    task: TunedTask
    rules: tuple[RuleFacts, ...] = ()
    """The rules that have words for parameters."""

    @property
    def name(self) -> str:
        """Operator and shapes; a task without such a name has its kernel's."""
        if self.task.workload.startswith("tir "):
            return clean(self.task.kernel, NAME_LIMIT)
        return clean(" ".join(self.task.workload.split(" ")[:3]), NAME_LIMIT)

    @property
    def trials(self) -> str:
        earlier = f" + {self.task.earlier}" if self.task.earlier else ""
        return f"{self.task.trials}{earlier}"

    @property
    def untuned(self) -> str:
        return self._speed(self.task.untuned_s)

    @property
    def best(self) -> str:
        return self._speed(self.task.best_s)

    @property
    def validated(self) -> str:
        """The validated speed-up, with its interval."""
        if self.task.speedup is None or self.task.interval is None:
            return "-"
        low, high = self.task.interval
        return f"{self.task.speedup:.2f}x ({low:.2f}-{high:.2f})"

    @property
    def used(self) -> str:
        """A description of the chosen parameters, or why there are none."""
        if self.task.chosen is None:
            return clean(self.task.note, 80)
        if self.task.chosen.trace is not None:
            begun = "".join(f"{k}={v}, " for k, v in self.task.chosen.params.items())
            return clean(begun, 60) + _("a MetaSchedule trace")
        return clean(", ".join(f"{k}={v}" for k, v in self.task.chosen.params.items()), 80)

    @property
    def words(self) -> list[str]:
        """The choice, in sentences."""
        return choice.sentences(self.task, self.rules)

    @property
    def worth(self) -> list[choice.Worth]:
        """The worth of its parts."""
        return choice.worth(self.task)

    def _speed(self, seconds: float | None) -> str:
        if seconds is None or self.task.flops is None:
            return format_s(seconds)
        return f"{self.task.flops / seconds / 1e9:.1f} GFLOP/s"


def searched(session: Session) -> list[TaskRow]:
    """Return the tasks that have trials, the heaviest first."""
    tasks = [t for t in session.tuning if t.trials or t.earlier]
    return [TaskRow(t, session.rules) for t in sorted(tasks, key=lambda t: -t.total_s)]


def figures(session: Session, key: str) -> Iterator[dict[str, Any]]:
    """Yield a step for every improvement of a task's best time, relative to its untuned kernel."""
    lines = [line for row in searched(session)[:MOST_LINES] if (line := _line(row))]
    if lines:
        yield {
            "id": f"{key}-tuning-figure",
            "kind": "steps",
            "x": _("seconds of search"),
            "y": _("speed over the untuned kernel, as searched"),
            "lines": lines,
        }


def _line(row: TaskRow) -> dict[str, Any] | None:
    untuned_s, points = row.task.untuned_s, row.task.points
    if untuned_s is None or not points:
        return None
    return {
        "label": row.name,
        "x": [p.elapsed_s for p in points],
        "y": [untuned_s / p.best_s for p in points],
        "trials": [p.trial for p in points],
        "hover": [
            [
                row.name,
                _("{speed:.2f}x after {n} trials").format(speed=untuned_s / p.best_s, n=p.trial),
            ]
            for p in points
        ],
    }
