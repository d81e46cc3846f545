"""Where the time goes: kernels, their loop nests and the machine's roofs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tvmscope.core.row import RowKey
from tvmscope.core.tuning import Choice
from tvmscope.messages import Text


@dataclass(frozen=True, kw_only=True)
class KernelTime:
    """One kernel's share of a run; None where unknown, never 0."""

    name: str
    source_ops: tuple[str, ...]
    """The model's own operators that it computes; empty where they are not known."""
    calls: int
    """Calls in one run."""
    total_s: float
    """Seconds of all its calls in one run: the mean over the profile's typical runs."""
    flops: float | None = None
    bytes: float | None = None
    """What all its calls of one run compute, and move at the least: inputs once, outputs once."""
    kind: str = "compute"
    """`compute`, or `layout` for one that only moves data: transposes, reorders, casts, copies."""


@dataclass(frozen=True, kw_only=True)
class DeviceTimes:
    """How a GPU spent a profiled run, by its own clock.

    The sum over all kernels, less `overlap_s`, plus `gap_s` and `edge_s` is the run.
    """

    launches: int
    """Kernels and copies that the device was given."""
    gap_s: float
    """Nothing ran, between the first kernel's start and the last one's end."""
    edge_s: float
    """Before the first kernel and behind the last: the call, the first launch, the wait."""
    overlap_s: float
    """What the sum over kernels counts twice: kernels that ran at the same time."""


@dataclass(frozen=True, kw_only=True)
class Profile:
    """Kernel times of one row of the table, from a run of its own."""

    key: RowKey
    kernels: tuple[KernelTime, ...]
    how: Text
    """The instrument: TVM's VM instrument, ONNX Runtime's profiler ..."""
    runs: int
    end_to_end_s: float
    """A plain run without the instrument, in the same process, in turns with profiled ones."""
    profiled_s: float
    """A run with the instrument on."""
    host_s: float | None = None
    """Time beside the kernels in a profiled run, measured, so that the two need not add up to
    `profiled_s`; None where it cannot be. On a GPU the time in which it ran nothing."""
    device: DeviceTimes | None = None
    """Where the instrument has a GPU's own time stamps."""

    @property
    def total_s(self) -> float:
        """The sum over all kernels."""
        return sum(k.total_s for k in self.kernels)

    @property
    def overhead_s(self) -> float:
        """What profiling adds to a run."""
        return self.profiled_s - self.end_to_end_s


@dataclass(frozen=True, kw_only=True)
class Loop:
    """A node of a kernel's loop nest: a loop, or a statement where `extent` is None."""

    text: str
    """The loop's variable, or the statement in short."""
    extent: int | None = None
    mode: str = "serial"
    """`serial`, `parallel`, `vectorized`, `unrolled`, or a GPU thread axis (`blockIdx.x` ...)."""
    body: tuple[Loop, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Buffer:
    """A buffer of a kernel; its scope is the memory that it lives in."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    scope: str


@dataclass(frozen=True, kw_only=True)
class MachineCode:
    """What a GPU kernel's machine code takes and uses, read from the code itself."""

    symbol: str
    """What the device's profiler calls it."""
    template: str
    threads: int
    """Of a block."""
    blocks: int
    registers: int
    """Per thread."""
    shared_bytes: int
    """Per block."""
    spilled_bytes: int
    """Per thread, in local memory."""
    resident: int | None = None
    """Blocks that fit a multiprocessor at once; None where its limits are not known."""
    multiprocessors: int | None = None
    matrix: str | None = None
    """The matrix instructions in it, such as `wgmma`; None where there are none."""


@dataclass(frozen=True, kw_only=True)
class KernelIR:
    """A kernel's loop tree and schedule, readable without TVM."""

    name: str
    tree: tuple[Loop, ...]
    key: RowKey | None = None
    """The row it belongs to: rows may have kernels of one name. None in files of an artifact, which
    is one row."""
    buffers: tuple[Buffer, ...] = ()
    trace: tuple[str, ...] = ()
    """The schedule's primitives in order, where they were recorded."""
    rule: str | None = None
    """The schedule rule that took it; None where none did."""
    workload: str | None = None
    """What tuning records know it by."""
    tuned: Choice | None = None
    """The record that it was built from; None if the rule's default was used."""
    kind: str = "compute"
    """As in `KernelTime`."""
    flops: float | None = None
    bytes: float | None = None
    """Of one call."""
    code: MachineCode | None = None
    """Of a generated GPU kernel."""

    def is_of(self, key: RowKey) -> bool:
        """Whether it describes a kernel of this row; an artifact's own description names none."""
        return self.key is None or self.key == key


Code = Literal["tir", "llvm", "asm", "cuda", "ptx", "sass"]
"""A form of a kernel's code, from the loops to the device's own instructions."""


@dataclass(frozen=True, kw_only=True)
class Roof:
    """A measured limit of the machine."""

    dtype: str
    threads: int
    flops_per_s: float | None
    bytes_per_s: float | None
    how: Text
    device: str = "cpu"
    """`cpu` or `cuda`: which profiles it limits."""
    level: str | None = None
    """The memory that a bandwidth was read from: `L1` ... `DRAM`."""
    size_bytes: int | None = None
    """How much was read, over all threads: the level holds at least so much."""
