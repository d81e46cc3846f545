"""Runs built kernels: the protocol that a farm of devices implements too, and this machine."""

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
"""Of the time limit that all values of one kernel may take together."""


class Runner(Protocol):
    """Where kernels are measured. Every failure is raised, as a `TvmscopeError`."""

    slots: int
    """How many kernels it measures at the same time."""
    local: bool
    """Whether it is this machine, where kernels can be compared in processes of their own."""

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
        """`repeat` values in seconds, each the mean of calls that take `min_repeat_ms` or more."""

    def outputs(self, library: Path, args: Arguments, seed: int) -> Arrays:
        """The arguments that one call changes, in order; all are filled by `kernels.fill`."""

    def pause(self) -> None:
        """Stop using this machine's cores; the next request continues."""

    def close(self) -> None:
        """End it."""


class LocalRunner:
    """This machine's CPU or GPU, in one worker process; a kernel that kills or blocks it costs that
    kernel.

    Values are taken with warm caches, or with caches that are emptied before each call. Where the
    size of the model's weights is given, a kernel's own come from as far away as in the model.
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
        """The worker's process id, while there is one."""
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
        """See `Runner`; fewer values where so many would not end in time."""
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
        """The worker with the kernel loaded; one that is of no further use is ended.

        An error stays in a CUDA context for good: every later kernel of the process would fail.
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
        """Keep it quiet while others use the cores."""
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
