"""Profiles: kernels, their loop nests and the machine's roofs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tvmscope.core.row import RowKey
from tvmscope.core.tuning import Choice
from tvmscope.messages import Text

Products = Literal["tf32", "tf32x3"]
"""How tensor cores multiply float32: rounded to TF32, or as three products of TF32."""
_WARP = 32
_FRAGMENTS = ("wmma.", "m16n8k", "metal.simdgroup")
"""The scopes of buffers that hold operands of matrix instructions."""


@dataclass(frozen=True, kw_only=True)
class Resources:
    """What a launch of a GPU kernel takes of a multiprocessor; unknown values are None."""

    blocks: int
    threads: int
    """Threads per block."""
    registers: int | None = None
    """Registers per thread."""
    shared_bytes: int | None = None
    """Shared memory per block."""
    spilled_bytes: int | None = None
    """Local memory per thread for spilled registers."""
    occupancy: float | None = None
    """The estimated share of a multiprocessor's warps that its blocks fill at once."""


@dataclass(frozen=True, kw_only=True)
class Edges:
    """Where a kernel's call lies in a program: both are empty in its middle."""

    inputs: tuple[int, ...] = ()
    """The places of the program's inputs that it reads, themselves or views of them."""
    outputs: tuple[int, ...] = ()
    """The places of the program's outputs that it writes."""


@dataclass(frozen=True, kw_only=True)
class KernelTime:
    """One kernel's part of a run; unknown values are None, never 0."""

    name: str
    source_ops: tuple[str, ...]
    """The model's own operators that it computes; empty if they are not known."""
    calls: int
    """Calls in one run."""
    total_s: float
    """The seconds of all its calls in one run: the mean over the profile's typical runs."""
    flops: float | None = None
    bytes: float | None = None
    """The flops of all its calls in one run, and the least bytes: inputs once, outputs once."""
    kind: str = "compute"
    """`compute`, or `layout` for a kernel that only moves data: transposes, casts, copies."""
    products: Products | None = None
    """Set if it multiplies float32 on tensor cores; None if not, or if it is not known."""
    resources: Resources | None = None
    """On a GPU, those of its longest launch."""
    symbol: str | None = None
    """The name under which the device ran that launch, where it is a library's."""
    edges: Edges | None = None
    """Where its calls lie in the program; None in older sessions, of other backends, or if it is
    not known."""


@dataclass(frozen=True, kw_only=True)
class DeviceTimes:
    """How a GPU spent a profiled run, by its own clock.

    The sum over all kernels, minus `overlap_s`, plus `gap_s` and `edge_s`, is the run.
    """

    launches: int
    """Kernels and copies that the device received."""
    gap_s: float
    """The time without any kernel, between the first kernel's start and the last one's end."""
    edge_s: float
    """The time before the first kernel and after the last: the call, the first launch, the wait."""
    overlap_s: float
    """The time that the sum over kernels counts twice: kernels that ran at the same time."""
    plain_s: float | None = None
    """A run without the instrument, between two events on the device: tracing makes gaps longer."""


@dataclass(frozen=True, kw_only=True)
class Profile:
    """Kernel times of one row of the table, from a separate run."""

    key: RowKey
    kernels: tuple[KernelTime, ...]
    how: Text
    """The instrument: TVM's VM instrument, ONNX Runtime's profiler ..."""
    runs: int
    end_to_end_s: float
    """The time of a run without the instrument, in the same process, in turns with the others; on a
    GPU that of the measurement, if there is one."""
    profiled_s: float
    """The time of a run with the instrument."""
    host_s: float | None = None
    """The measured time outside kernels in a profiled run, so that it and the kernels need not sum
    to `profiled_s`; None if it cannot be measured. On a GPU, the time in which it ran nothing."""
    device: DeviceTimes | None = None
    """Set if the instrument has a GPU's own time stamps."""

    @property
    def total_s(self) -> float:
        """The sum over all kernels."""
        return sum(k.total_s for k in self.kernels)

    @property
    def busy_s(self) -> float:
        """The time in which at least one kernel ran."""
        return self.total_s - (self.device.overlap_s if self.device else 0.0)

    @property
    def waits_s(self) -> float | None:
        """The time in which the device ran nothing between the events of a plain run; None if that
        was not measured."""
        return None if self.plain is None else self.plain[0]

    @property
    def plain(self) -> tuple[float, float] | None:
        """The gaps and the edges of a plain run: what the device waits, and the call around it."""
        if self.device is None or self.device.plain_s is None:
            return None
        return max(0.0, self.device.plain_s - self.busy_s), self.end_to_end_s - self.device.plain_s

    @property
    def seen_s(self) -> float:
        """The time of a plain run by the profile; kernels on a GPU cannot take longer than it."""
        return self.end_to_end_s if self.device is None else max(self.end_to_end_s, self.busy_s)

    @property
    def overhead_s(self) -> float:
        """The time that profiling adds to a run."""
        return self.profiled_s - self.end_to_end_s


@dataclass(frozen=True, kw_only=True)
class Loop:
    """A node of a kernel's loop nest: a loop, or a statement where `extent` is None."""

    text: str
    """The loop's variable, or a short form of the statement."""
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
    """The resources and the matrix instructions of a GPU kernel, read from its machine code."""

    symbol: str
    """Its name in the device's profiler."""
    template: str
    threads: int
    """Threads per block."""
    blocks: int
    registers: int
    """Registers per thread."""
    shared_bytes: int
    """Shared memory per block."""
    spilled_bytes: int
    """Local memory per thread for spilled registers."""
    resident: int | None = None
    """Blocks that fit a multiprocessor at once; None if its limits are not known."""
    multiprocessors: int | None = None
    sm_warps: int | None = None
    """Warps that a multiprocessor holds at once at most; None if its limits are not known."""
    matrix: str | None = None
    """Its matrix instructions, such as `wgmma`; None if there are none."""

    @property
    def resources(self) -> Resources:
        """What it takes of a multiprocessor, as far as the code shows it."""
        return Resources(
            blocks=self.blocks,
            threads=self.threads,
            registers=self.registers,
            shared_bytes=self.shared_bytes,
            spilled_bytes=self.spilled_bytes,
            occupancy=self.occupancy,
        )

    @property
    def occupancy(self) -> float | None:
        """The share of a multiprocessor's warps that its blocks fill, estimated in the same way as
        PyTorch's profiler: a grid with fewer blocks than fit fills less. None if a limit of the
        device is not known."""
        if not self.resident or not self.multiprocessors or not self.sm_warps:
            return None
        blocks = min(self.resident, self.blocks / self.multiprocessors)
        return blocks * -(-self.threads // _WARP) / self.sm_warps


@dataclass(frozen=True, kw_only=True)
class KernelIR:
    """A kernel's loop tree and schedule, readable without TVM."""

    name: str
    tree: tuple[Loop, ...]
    key: RowKey | None = None
    """The row that the kernel belongs to, because rows may have kernels of one name. None in files
    of an artifact, which is one row."""
    buffers: tuple[Buffer, ...] = ()
    trace: tuple[str, ...] = ()
    """The schedule's primitives in order, if they were recorded."""
    rule: str | None = None
    """The schedule rule that took the kernel; None if none did."""
    workload: str | None = None
    """Its key in tuning records."""
    tuned: Choice | None = None
    """The record that it was built from; None if the rule's default was used."""
    kind: str = "compute"
    """As in `KernelTime`."""
    flops: float | None = None
    bytes: float | None = None
    """The work and the traffic of one call."""
    code: MachineCode | None = None
    """Set for a generated GPU kernel."""
    products: Products | None = None
    """As in `KernelTime`."""

    @property
    def has_fragments(self) -> bool:
        """Whether a buffer lies in fragments, which only tensor cores multiply."""
        return any(b.scope.startswith(_FRAGMENTS) for b in self.buffers)

    def is_of(self, key: RowKey) -> bool:
        """Whether it describes a kernel of this row; an artifact's own description has no row."""
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
    """The device whose profiles it limits: `cpu` or `cuda`."""
    level: str | None = None
    """The memory that a bandwidth was read from: `L1` ... `DRAM`."""
    size_bytes: int | None = None
    """The amount of data read by all threads: the level holds at least this much."""
    products: Literal["tf32"] | None = None
    """Set if the rate is that of float32 numbers on tensor cores, which round them to TF32."""
