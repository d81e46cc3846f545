"""Runs built kernels: the protocol, which a farm of devices also implements, and this machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import ceil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol, Self

import numpy as np

from tvmscope.errors import TvmscopeError
from tvmscope.measure.worker import Worker, WorkerDied
from tvmscope.tuning.trials.kernels import LOAD, WARM, Arguments, KernelRequest

Arrays = list[np.ndarray[Any, Any]]

START_TIMEOUT_S = 120.0
"""A new process imports TVM before its first kernel."""
_LONGEST_SHARE = 0.5
"""The share of the time limit for all values of one kernel together."""


class Runner(Protocol):
    """Measures kernels. Every failure is raised, as a `TvmscopeError`."""

    slots: int
    """How many kernels it measures at the same time."""
    local: bool
    """Whether it is this machine, where kernels can be compared in separate processes."""

    def measure(
        self,
        library: Path,
        args: Arguments,
        *,
        seed: int,
        repeat: int,
        min_repeat_ms: float,
        timeout_s: float,
    ) -> tuple[float, ...]:
        """Return `repeat` values in seconds, each the mean of calls over `min_repeat_ms`."""

    def outputs(self, library: Path, args: Arguments, seed: int) -> Arrays:
        """Return the arguments that one call changes, in order; `kernels.fill` fills all."""

    def pause(self) -> None:
        """Stop using this machine's cores; the next request continues."""

    def close(self) -> None:
        """End the runner."""


class LocalRunner:
    """This machine's CPU or GPU, in one worker process; a kernel that ends it costs only itself.

    Values are measured with warm caches, or with caches that are emptied before each call. If the
    size of the model's weights is given, a kernel's own weights come from as far away as in the
    model.
    """

    slots = 1
    local = True

    def __init__(
        self,
        *,
        threads: int,
        device: str = "cpu",
        cold: bool = False,
        timeout_s: float = 60.0,
        weights_bytes: int = 0,
    ) -> None:
        self.threads = threads
        self.device = device
        self.cold = cold
        self.weights_bytes = weights_bytes
        self.timeout_s = timeout_s
        self._worker: Worker | None = None
        self._loaded: KernelRequest | None = None

    @property
    def pid(self) -> int | None:
        """The worker's process id, if it runs."""
        return None if self._worker is None else self._worker.pid

    def measure(
        self,
        library: Path,
        args: Arguments,
        *,
        seed: int,
        repeat: int,
        min_repeat_ms: float,
        timeout_s: float,
    ) -> tuple[float, ...]:
        """See `Runner`; return fewer values if the time limit does not suffice."""
        with self._ready(library, args, seed) as worker:
            worker.timeout_s = timeout_s
            first_s = min(worker.time(2))
            loops = 1 if self.cold else max(1, ceil(min_repeat_ms * 1e-3 / max(first_s, 1e-9)))
            fitting = int(_LONGEST_SHARE * timeout_s / max(first_s * loops, 1e-9))
            return tuple(worker.time(max(1, min(repeat, fitting)), loops, self.cold))

    def outputs(self, library: Path, args: Arguments, seed: int) -> Arrays:
        """See `Runner`."""
        with (
            self._ready(library, args, seed) as worker,
            TemporaryDirectory(prefix="tvmscope-") as folder,
        ):
            file = Path(folder) / "outputs.npz"
            worker.outputs(file)
            with np.load(file) as found:
                return [found[name] for name in sorted(found.files, key=int)]

    @contextmanager
    def _ready(self, library: Path, args: Arguments, seed: int) -> Iterator[Worker]:
        """Yield the worker with the kernel loaded; end one that is no longer usable.

        An error stays in a CUDA context permanently: every later kernel of the process would fail.
        """
        request = KernelRequest(
            library=library,
            args=args,
            seed=seed,
            threads=self.threads,
            device=self.device,
            weights_bytes=self.weights_bytes,
        )
        try:
            worker = self._started()
            if self._loaded != request:
                self._loaded = None
                worker.load(LOAD, request)
                self._loaded = request
            yield worker
        except TvmscopeError as e:
            if isinstance(e, WorkerDied) or self.device == "cuda":
                self.close()
            raise

    def _started(self) -> Worker:
        if self._worker is None:
            env = {"TVM_NUM_THREADS": str(self.threads), "OMP_NUM_THREADS": str(self.threads)}
            self._worker = Worker("runner", env=env, timeout_s=START_TIMEOUT_S)
            self._worker.call(WARM)
        self._worker.timeout_s = self.timeout_s
        return self._worker

    def pause(self) -> None:
        """Stop it while others use the cores."""
        if self._worker is not None:
            self._worker.pause()

    def close(self) -> None:
        """End the process, if there is one."""
        if self._worker is not None:
            self._worker.kill()
        self._worker = self._loaded = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
