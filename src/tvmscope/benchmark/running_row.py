"""A row that is being measured: an entry, its worker, and the result so far."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from tvmscope.benchmark.entry import Entry
from tvmscope.benchmark.verify import FLOAT64, verify
from tvmscope.core.measurement import Accuracy, Cause, GpuUse, Measurement, Result, Status
from tvmscope.core.options import MeasureOptions
from tvmscope.core.prepared.sensitivity import UNIT
from tvmscope.core.row import Device, RowKey
from tvmscope.core.stats import cov, spread
from tvmscope.errors import BackendUnavailable, TvmscopeError, one_line
from tvmscope.machine.gpu_state import GpuState
from tvmscope.measure.interleave import Lane
from tvmscope.measure.worker import LoadInfo, Worker, WorkerDied
from tvmscope.messages import Text, msg

CPU_SPREAD = 0.10
CUDA_COV = 0.025
NOT_MEASURED = msg("stopped before it was measured")


@dataclass
class RunningRow:
    """Collects the outcome of one entry; `result()` may be called at any time."""

    entry: Entry
    worker: Worker | None = None
    info: LoadInfo | None = None
    accuracy: Accuracy | None = None
    peak_memory_bytes: int | None = None
    lane: Lane | None = None
    cores: float | None = None
    gpu: GpuUse | None = None
    failure: TvmscopeError | None = None
    warnings: list[Text] = field(default_factory=list)

    @property
    def key(self) -> RowKey:
        return self.entry.key

    @property
    def label(self) -> str:
        return self.key.label

    def start(self, options: MeasureOptions, log_path: Path | None) -> None:
        """Start a separate worker, which waits stopped."""
        self.worker = Worker(
            self.label,
            env=self.entry.env,
            timeout_s=options.timeout_s,
            log_path=log_path,
            fork=self.key.device != "cuda",
        )

    def prepare(self, outputs: Path, against: Reference) -> None:
        """Load, verify, and stop the worker; the row records a failure."""
        assert self.worker is not None  # `start` runs first
        try:
            self.worker.must_fit(self.entry.need_bytes)
            self.info = self.worker.load(self.entry.load, self.entry.request)
            self.worker.outputs(outputs)
            self.accuracy = against.judge(outputs)
            if self.accuracy.within_noise:
                self.warnings.append(_by_noise(self.accuracy))
            self.peak_memory_bytes = self.worker.peak_memory_bytes()
            self.worker.pause()
        except TvmscopeError as e:
            self.failure = e
            self.end()
            return
        self.lane = Lane(self.label, self.worker, self.info.has_device_timer)

    def finish(self) -> None:
        """Record the peak memory and the number of busy cores after all runs."""
        if self.lane is None or self.lane.failure is not None or self.worker is None:
            return
        try:
            self.peak_memory_bytes = self.worker.peak_memory_bytes()
            self.cores = self.worker.cores_used()
        except TvmscopeError as e:  # all times are known: keep them, and the peak after loading
            self.warnings.append(msg("ended after the last round: {reason}", reason=one_line(e)))

    def watch(self, state: GpuState) -> None:
        """Record the GPU's clock after each round."""
        assert self.lane is not None  # `prepare` runs first
        self.gpu = GpuUse()

        def look() -> None:
            now, before = state.sample(), self.gpu or GpuUse()
            clocks = before.sm_mhz if now.sm_mhz is None else (*before.sm_mhz, now.sm_mhz)
            held = tuple(dict.fromkeys((*before.held_down, *now.held_down)))
            self.gpu = replace(before, sm_mhz=clocks, held_down=held)

        self.lane.watch = look

    def close(self, state: GpuState | None) -> None:
        """Let the worker exit; the memory that the GPU then gets back is what the row used."""
        if self.worker is None:
            return
        before = state.used_bytes() if state is not None and self.gpu is not None else None
        self.worker.close()
        after = None if before is None or state is None else state.used_bytes()
        if self.gpu is not None and before is not None and after is not None and before > after:
            self.gpu = replace(self.gpu, memory_bytes=before - after)

    def end(self) -> None:
        """End the worker at once, if there is one."""
        if self.worker is not None:
            self.worker.kill()

    def result(self) -> Result:
        """Return the row as far as it is known."""
        status, reason = self._status()
        lane = self.lane if status in ("ok", "wrong") else None
        warnings = (*self.entry.warnings, *self.warnings, *(lane.notes if lane else ()))
        wall = _measurement(lane)
        if wall is not None:
            warnings += _noise(wall, self.key.device)
        return Result(
            task=self.entry.task,
            status=status,
            reason=reason,
            cause=self._cause() if status == "failed" else None,
            measurement=wall,
            device_measurement=_device_measurement(lane),
            accuracy=self.accuracy,
            build_s=self.entry.build_s,
            load_s=self.info.load_s if self.info else None,
            peak_memory_bytes=self.peak_memory_bytes,
            cores_used=self.cores,
            gpu=self.gpu,
            settings=self.info.settings if self.info else None,
            warnings=warnings,
            items=self.entry.items,
        )

    def _cause(self) -> Cause | None:
        failure = self.failure or (self.lane.failure if self.lane else None)
        return failure.kind if isinstance(failure, WorkerDied) else self.entry.cause

    def _status(self) -> tuple[Status, Text | None]:
        failure = self.failure or (self.lane.failure if self.lane else None)
        if self.entry.unavailable is not None:
            return "unavailable", self.entry.unavailable
        if self.entry.failure is not None:
            return "failed", self.entry.failure
        if failure is not None:
            kind: Status = "unavailable" if isinstance(failure, BackendUnavailable) else "failed"
            return kind, failure.reason if isinstance(failure, WorkerDied) else one_line(failure)
        if self.lane is None or not self.lane.rounds_s or self.accuracy is None:
            return "interrupted", NOT_MEASURED
        return ("ok", None) if self.accuracy.passed else ("wrong", self.accuracy.detail)


@dataclass(frozen=True)
class Reference:
    """The values that outputs are checked against, and the tolerance."""

    path: Path
    name: str
    tolerance: float
    atol: float = 0.0
    noise: Callable[[], Path | None] = lambda: None
    """Estimates the model's own rounding noise; see `verify`."""
    exact: Callable[[], Path | None] = lambda: None
    """Gives the outputs in float64, if there are any."""

    def judge(self, outputs: Path) -> Accuracy:
        """Compare with float64; what is over the tolerance then, with the framework's own outputs,
        and with the model's noise."""
        if (exact := self.exact()) is not None:
            found = verify(outputs, exact, self.tolerance, FLOAT64, atol=self.atol)
            if found.passed:
                return found
        return verify(
            outputs, self.path, self.tolerance, self.name, atol=self.atol, noise=self.noise
        )


def _by_noise(accuracy: Accuracy) -> Text:
    return msg(
        "within the model's own rounding noise ({amplification:.0f} x amplification): error "
        "{error:.1e}, tolerance {tolerance:.0e}, noise {noise:.1e}",
        amplification=(accuracy.noise or 0.0) / UNIT,
        error=accuracy.error or 0.0,
        tolerance=accuracy.tolerance,
        noise=accuracy.noise or 0.0,
    )


def _measurement(lane: Lane | None) -> Measurement | None:
    if lane is None:
        return None
    return Measurement(
        rounds_s=tuple(lane.rounds_s),
        warmups_s=lane.warmups_s,
        loops=lane.pace.loops if lane.pace else 1,
    )


def _device_measurement(lane: Lane | None) -> Measurement | None:
    if lane is None or not lane.device_rounds_s:
        return None
    return Measurement(rounds_s=tuple(lane.device_rounds_s), clock="cuda-events")


def _noise(m: Measurement, device: Device) -> tuple[Text, ...]:
    if device == "cuda":
        share = cov(m)
        if share is not None and share > CUDA_COV:
            note = msg(
                "noisy: standard deviation is {share:.1%} of the mean (over {limit:.1%})",
                share=share,
                limit=CUDA_COV,
            )
            return (note,)
        return ()
    share = spread(m)
    if share > CPU_SPREAD:
        return (
            msg("noisy: half of the values spread over {share:.0%} of the median", share=share),
        )
    return ()
