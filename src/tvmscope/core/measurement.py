"""Raw timings; every statistic is derived from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tvmscope.core.row import RowKey, Task
from tvmscope.messages import Text, marked

ITSELF = "its own first run"
"""A reference that shows only that the result is repeatable."""


@dataclass(frozen=True, kw_only=True)
class Accuracy:
    """The worst case over all outputs; `error` is max|a-b| / max|ref|."""

    reference: str
    passed: bool
    max_abs: float | None
    error: float | None
    cosine: float | None
    tolerance: float
    noise: float | None = None
    """The model's own rounding noise, as an error, if the error is over the tolerance but within
    that noise: then `passed` is true, and so is `within_noise`."""
    detail: Text | None = None
    """Why the check failed: the output's name and the difference; None if it passed."""

    @property
    def within_noise(self) -> bool:
        """Whether the check passed only because of the model's noise, not by the tolerance."""
        return self.passed and self.noise is not None


Status = Literal["ok", "wrong", "failed", "unavailable", "interrupted"]
_SAID = (
    marked("ok"), marked("wrong"), marked("failed"), marked("unavailable"), marked("interrupted"),
)  # fmt: skip
"""For translators: `messages.word` shows these words."""


Cause = Literal["unsupported", "crash", "hang", "exit", "memory", "time", "disk"]
"""The kind of a row's failure: its importer refused the model, or its process ended."""


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """Seconds per run, grouped by interleaved round. Raw values only."""

    rounds_s: tuple[tuple[float, ...], ...]
    """One tuple per round; each value is the mean of `loops` back-to-back runs."""
    warmups_s: tuple[float, ...] = ()
    loops: int = 1
    clock: str = "wall"
    """`wall`, or `cuda-events` for device time between two events."""

    @property
    def values_s(self) -> tuple[float, ...]:
        """All values in the order in which they were measured."""
        return tuple(v for r in self.rounds_s for v in r)


@dataclass(frozen=True, kw_only=True)
class GpuUse:
    """The state of the GPU while a row was measured."""

    sm_mhz: tuple[int, ...] = ()
    """The multiprocessors' clock directly after each round."""
    held_down: tuple[str, ...] = ()
    """The reasons why the clock was below its setting, such as `power cap`."""
    memory_bytes: int | None = None
    """The memory that was freed when the row's process ended, including its CUDA context."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """One backend's row: the task, its outcome, and the reason."""

    task: Task
    status: Status
    reason: Text | None = None
    cause: Cause | None = None
    """The kind of failure of a failed row, if it is known."""
    measurement: Measurement | None = None
    device_measurement: Measurement | None = None
    """CUDA only: the same rounds, measured with events."""
    accuracy: Accuracy | None = None
    build_s: float | None = None
    load_s: float | None = None
    peak_memory_bytes: int | None = None
    cores_used: float | None = None
    """Cores that were busy on average during the timing."""
    gpu: GpuUse | None = None
    settings: dict[str, Text] | None = None
    warnings: tuple[Text, ...] = ()
    items: int | None = None
    """Throughput mode only: how many items one run computes (the batch size)."""

    @property
    def key(self) -> RowKey:
        return self.task.key
