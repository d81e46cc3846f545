"""The facts about a step: its loops, its machine code, its memory, its time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tvmscope.analysis.roofline import Limits, limits_of
from tvmscope.core.comparison import Verdict
from tvmscope.core.measurement import Measurement
from tvmscope.core.profile import KernelTime, Loop, Roof
from tvmscope.core.stats import median_interval, median_s
from tvmscope.core.target import Target
from tvmscope.machine.caches import Cache
from tvmscope.machine.counters import Counted
from tvmscope.messages import Text


@dataclass(frozen=True, kw_only=True)
class Exhibit:
    """An illustration: a stage of a compilation, a kernel's source, a table of numbers."""

    title: Text
    words: Text
    code: str = ""
    language: str = "text"
    """The highlighter's name of the language: `python`, `cuda`, `llvm`, `text`."""


@dataclass(frozen=True, kw_only=True)
class HotLoop:
    """The innermost loop of the machine code with the most arithmetic; counts are per iteration."""

    instructions: int
    vector_math: int
    scalar_math: int
    vector_bits: int
    """The widest register that arithmetic uses; 0 if it is scalar."""
    loads: int
    stores: int
    spills: int
    """Reads and writes of the stack: values without a register."""
    gathers: int
    shuffles: int
    sums: int
    """Distinct destination registers of multiply-adds: how many can be in progress at once."""
    flops: float
    text: tuple[str, ...]

    @property
    def math(self) -> int:
        return self.vector_math + self.scalar_math

    @property
    def flops_per_instruction(self) -> float:
        return self.flops / self.instructions if self.instructions else 0.0


@dataclass(frozen=True, kw_only=True)
class Access:
    """One operand of the main statement."""

    buffer: str
    writes: bool
    stride_bytes: int
    """The distance in memory between two iterations of the innermost loop."""


@dataclass(frozen=True, kw_only=True)
class Memory:
    """How the loops around the main statement access its operands."""

    loop: str
    """The innermost loop's variable."""
    accesses: tuple[Access, ...]
    traffic_bytes: dict[str, float]
    """By cache: the bytes from beyond it, estimated from the loops and the cache's size."""


@dataclass(frozen=True, kw_only=True)
class Built:
    """A step, compiled and checked against numpy."""

    tree: tuple[Loop, ...]
    script: str
    assembly: str
    hot: HotLoop | None
    memory: Memory | None
    flops: float | None
    bytes: float | None
    parallel: int
    """The iterations of all parallel loops; 1 if nothing runs in parallel."""
    launches: int
    """How often work is distributed to threads in one run."""
    guards: int
    """Conditions inside the loops."""
    error: float
    """max|a-b| / max|b| against numpy."""
    right: bool


@dataclass(frozen=True, kw_only=True)
class StepRun:
    """A step with all facts about it, or why it failed."""

    name: str
    title: Text
    code: str = ""
    note: Text | None = None
    params: dict[str, int] = field(default_factory=dict)
    built: Built | None = None
    failure: Text | None = None
    measurement: Measurement | None = None
    counted: Counted | None = None
    threads: int = 1
    against: str | None = None
    """The step that it is to be compared with; None is the one before it."""
    beside: int | None = None
    """The number of the step that it was compared with, where that is not the one before it."""
    share: float | None = None
    """The share of the roof that limits it."""
    ratio: float | None = None
    """The previous step's time over its own: above 1 means faster."""
    ratio_ci95: tuple[float, float] | None = None
    verdict: Verdict | None = None
    reasons: tuple[Text, ...] = ()

    @property
    def seconds(self) -> float | None:
        return None if self.measurement is None else median_s(self.measurement)

    @property
    def interval_s(self) -> tuple[float, float] | None:
        return None if self.measurement is None else median_interval(self.measurement.rounds_s)

    @property
    def gflops(self) -> float | None:
        seconds = self.seconds
        if seconds is None or self.built is None or self.built.flops is None:
            return None
        return self.built.flops / seconds * 1e-9

    @property
    def right(self) -> bool:
        return self.built is not None and self.built.right

    @property
    def uses(self) -> int:
        """The threads that the step can keep busy."""
        return min(self.threads, self.built.parallel) if self.built else 1


def with_shares(runs: Sequence[StepRun], limits: Limits) -> tuple[StepRun, ...]:
    """Add the share of the limiting roof that each step reaches.

    Steps that compute the same have the same roof: the fastest of them shows which memory the
    data can come from.
    """
    fastest: dict[tuple[float | None, float | None], float] = {}
    for run in runs:
        if run.built is not None and run.seconds is not None:
            work = (run.built.flops, run.built.bytes)
            fastest[work] = min(run.seconds, fastest.get(work, run.seconds))
    return tuple(replace(run, share=_share(run, fastest, limits)) for run in runs)


def _share(
    run: StepRun, fastest: Mapping[tuple[float | None, float | None], float], limits: Limits
) -> float | None:
    if run.seconds is None or run.built is None:
        return None
    flops, moved = run.built.flops, run.built.bytes
    work = KernelTime(
        name=run.name,
        source_ops=(),
        calls=1,
        total_s=fastest[flops, moved],
        flops=flops,
        bytes=moved,
    )
    least = limits.least_s(work)
    return None if least is None else least / run.seconds


Builder = Callable[[str, dict[str, int]], Built]


@dataclass(frozen=True, kw_only=True)
class Study:
    """The machine and the settings of a lesson, to which explanations and exercises may refer."""

    target: Target
    size: int
    threads: int
    params: dict[str, int]
    caches: tuple[Cache, ...]
    roofs: tuple[Roof, ...] = ()
    build: Builder | None = None
    """Compiles a step of the lesson with other parameters; None if no worker runs."""

    @property
    def lanes(self) -> int:
        return self.target.vector_bits // 32

    def cache(self, name: str) -> Cache | None:
        return next((c for c in self.caches if c.name == name), None)

    def bandwidth(self, level: str, threads: int) -> float | None:
        """Return the measured bytes per second of a memory level."""
        known = [
            r.bytes_per_s
            for r in self.roofs
            if r.level == level and r.threads <= threads and r.bytes_per_s is not None
        ]
        return max(known, default=None)


@dataclass(frozen=True, kw_only=True)
class LessonRun:
    """The results of a lesson on this machine."""

    lesson: str
    size: int
    study: Study
    steps: tuple[StepRun, ...] = ()
    exhibits: tuple[Exhibit, ...] = ()
    warnings: tuple[Text, ...] = ()

    @property
    def roof_threads(self) -> int:
        """The cores of the roof: as many as the most parallel step can use."""
        return max((step.uses for step in self.steps), default=1)

    @property
    def roof_gflops(self) -> float | None:
        """The peak GFLOP/s of this many cores."""
        rate = limits_of(self.study.roofs, "float32", self.roof_threads).flops_per_s
        return None if rate is None else rate * 1e-9
