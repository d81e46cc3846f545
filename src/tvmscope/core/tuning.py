"""The data of tuning: tasks, candidates, records of trials, and the resulting choices."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from tvmscope.core.target import Target
from tvmscope.messages import Message, Text, clauses, marked, msg, msgn, word

Params = dict[str, int | str]
"""A rule's parameters by name; the rule determines those that are missing."""

TUNED_KERNELS = "tuned_kernels"
"""The setting of a compiled row that says where its tuned kernels come from."""

SHIPPED_NAME = marked("shipped")
"""The name of every database that comes with the package."""

Status = Literal["ok", "failed", "wrong"]


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One way to compute a task: a rule's parameters, or a recorded MetaSchedule trace."""

    params: Params = field(default_factory=dict)
    trace: str | None = None
    """JSON of a schedule trace, to be replayed on the kernel without a rule."""

    @property
    def id(self) -> str:
        """An id that is the same for the same candidate, in every process and version."""
        text = json.dumps([sorted(self.params.items()), self.trace], separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True, kw_only=True)
class Lowering:
    """A kernel before scheduling, in a file, for the candidates that begin with `params`."""

    params: Params
    """The parameters that were decided during graph lowering: layout, Winograd or direct ..."""
    function: str
    """Path of a file with the function as TVM's JSON."""
    rule: str | None = None
    """The schedule rule that its candidates' parameters belong to; None if no rule has any."""
    own: Params = field(default_factory=dict)
    """The rule's own values of the schedule's parameters that a candidate does not name."""
    flops: float | None = None
    bytes: float | None = None
    """The work of one call: a Winograd kernel computes less than a direct one."""


@dataclass(frozen=True, kw_only=True)
class TuningTask:
    """A heavy kernel of a model, listed once for all its calls."""

    key: str
    """The workload: operator, shapes and dtype in one line; the same in every model."""
    rule: str | None
    """The schedule rule that takes it; None if only MetaSchedule can."""
    kernel: str
    """The kernel's name in the untuned model."""
    calls: int
    """How often a run of the model calls it."""
    flops: float | None
    bytes: float | None
    """The work of one call."""
    lowerings: tuple[Lowering, ...]
    """The kernel's lowerings; the first one is compiled if there are no records."""
    candidates: tuple[Candidate, ...] = ()
    """The rule's own search space, the untuned candidate (no params) first."""
    source_ops: tuple[str, ...] = ()
    loops: bool = True
    """Whether its functions are loops, which MetaSchedule can also schedule."""
    tolerance: float | None = None
    """The allowed error, relative to the largest value; None means that of the type."""

    def lowering_for(self, candidate: Candidate) -> Lowering:
        """Return the lowering of a candidate: the most specific one that agrees with it."""
        fitting = (x for x in self.lowerings if x.params.items() <= candidate.params.items())
        return max(fitting, key=lambda x: len(x.params))


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One line of the database: a candidate that was built and measured, or the reason why not."""

    workload: str
    candidate: Candidate
    target: Target
    threads: int
    status: Status
    seconds: tuple[float, ...] = ()
    """Raw times of one call."""
    reason: Text | None = None
    cpu: str = ""
    """The CPU's or GPU's model name."""
    clock_hz: float | None = None
    tvm: str = ""
    rule: str | None = None
    """The schedule rule that the parameters belong to; None if the candidate is a trace, which
    needs no rule, or if no rule took the kernel."""
    rule_version: int | None = None
    """The version of that rule: a candidate names only what differs from the rule's defaults."""
    rule_from: str | None = None
    """The distribution that brought the rule, and its version; None for a built-in one."""
    date: str = ""
    """The time in UTC, ISO 8601."""
    seed: int | None = None
    stage: Literal["search", "validated"] = "search"
    """`validated` trials were measured again, interleaved with the untuned kernel."""
    baseline_s: tuple[float, ...] = ()
    """For a validated trial: the untuned kernel's times in the same interleaved run."""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The candidate that a compilation uses for a workload, and its origin."""

    candidate: Candidate
    source: str
    """The database's name: `shipped`, or a file's name."""
    cpu: str = ""
    threads: int | None = None
    date: str = ""
    """From the record: where, on how many threads and when the choice was validated."""

    @property
    def origin(self) -> Text:
        """`shipped (AMD EPYC, 2 threads, 2026-11-15)`, as far as it is known."""
        source = word(self.source) if self.source == SHIPPED_NAME else self.source
        threads = msgn("{count} thread", "{count} threads", self.threads) if self.threads else ""
        known = [fact for fact in (self.cpu, threads, self.date[:10]) if fact]
        return msg("{source} ({facts})", source=source, facts=known) if known else source


def origins(choices: Iterable[Choice]) -> Text:
    """Describes where tuned kernels come from: `7 from shipped (...); 1 from my.jsonl (...)`.

    Of several dates the latest is shown; empty if nothing is tuned.
    """
    groups: dict[tuple[str, str, int | None], list[Choice]] = {}
    for choice in choices:
        groups.setdefault((choice.source, choice.cpu, choice.threads), []).append(choice)
    ordered = sorted(groups.values(), key=len, reverse=True)
    latest = [(len(group), max(group, key=lambda c: c.date)) for group in ordered]
    return clauses([msg("{count} from {origin}", count=n, origin=c.origin) for n, c in latest])


def because(gist: Text, detail: Text) -> Message:
    """Make a task's note with a detail: `too small: 0.10% of the model`."""
    return msg("{gist}: {detail}", gist=gist, detail=detail)


def gist(note: Text) -> Text:
    """Return the first part of such a note, by which tasks are grouped; else the whole note."""
    if not isinstance(note, Message):
        return note.split(":")[0]
    first = note.args.get("gist", note)
    return first if isinstance(first, str) else note


@dataclass(frozen=True, kw_only=True)
class TuningPoint:
    """A moment at which a task's best time decreased, or the search's end."""

    trial: int
    """How many candidates of the task had been tried, earlier runs included."""
    elapsed_s: float
    """Seconds since this search began."""
    best_s: float
    """The best time of one call, measured alone."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """A parameter or a primitive of a chosen candidate, and the kernel's time without it."""

    name: str
    """The parameter's name, or the primitive's."""
    kind: Literal["parameter", "primitive"]
    factor: float | None = None
    """The time without it over the time with it, in interleaved runs."""
    interval: tuple[float, float] | None = None
    """The 95 % interval of `factor`."""
    reason: Text | None = None
    """Why it could not be removed: the rest could not be built, or was wrong."""


@dataclass(frozen=True, kw_only=True)
class TunedTask:
    """A planned task and the result of its search; the session keeps these."""

    workload: str
    kernel: str
    rule: str | None
    calls: int
    total_s: float
    """The time of all calls in a run of the untuned model, as profiled."""
    share: float
    """The share of the untuned model's time."""
    least_s: float
    """The least time that the roof allows for all calls; 0 if no roof is known."""
    flops: float | None
    """The work of one call."""
    candidates: int
    """The number of the rule's own candidates."""
    expected_s: float | None = None
    """The expected saving of a search per run; an assumption (see `tuning.plan`)."""
    expected_per_minute_s: float | None = None
    trials: int = 0
    """The trials of this run."""
    earlier: int = 0
    """The trials of earlier runs, which were not repeated."""
    failed: int = 0
    wrong: int = 0
    untuned_s: float | None = None
    best_s: float | None = None
    """The best time of one call, measured alone."""
    points: tuple[TuningPoint, ...] = ()
    chosen: Candidate | None = None
    """The candidate that the tuned model uses; None if the untuned kernel stays."""
    speedup: float | None = None
    """The speed-up of the chosen kernel over the untuned one, in interleaved runs."""
    interval: tuple[float, float] | None = None
    """The 95 % interval of `speedup`."""
    own: Params = field(default_factory=dict)
    """The rule's own values of the chosen parameters, if they are known."""
    steps: tuple[str, ...] = ()
    """The calls of a chosen trace, as TVM writes them; none if a rule made the schedule."""
    parts: tuple[Part, ...] = ()
    """The worth of each part of the chosen candidate, if the parts were removed one by one."""
    note: Text = ""
    """Why it was not searched, or why nothing was chosen."""

    @property
    def roof_share(self) -> float | None:
        """The share of its roof that the untuned kernel reaches."""
        return self.least_s / self.total_s if self.least_s and self.total_s else None

    @property
    def headroom_s(self) -> float:
        """The largest possible saving per run of the model."""
        return max(0.0, self.total_s - self.least_s)
