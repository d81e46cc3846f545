"""Measures kernels on the servers of a TVM RPC tracker: built here, run there, several at once.

A server runs any library that it is sent, and TVM's RPC has no authentication: only servers in a
network of trusted machines belong to a farm.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Concatenate, ParamSpec, Self

import numpy as np

from tvmscope.errors import RunError
from tvmscope.measure.remote import Remote, here
from tvmscope.measure.worker import Worker, WorkerDied
from tvmscope.messages import Text, clauses, msg
from tvmscope.storage.codec import decode
from tvmscope.tuning.farm import remote_kernel, tracker
from tvmscope.tuning.farm.remote_kernel import Answer, Job
from tvmscope.tuning.farm.tracker import Address, Device, NoTracker, Place
from tvmscope.tuning.trials.kernels import WARM, Arguments

P = ParamSpec("P")

_MEASURE, _OUTPUTS = here(remote_kernel.measure), here(remote_kernel.outputs)
_DESCRIBE = here(remote_kernel.describe)
_START_TIMEOUT_S = 120.0
_MARGIN_S = 10.0
"""The client's time limit beyond the server's own, after which the client counts as hung."""
_TRACKER_S = 30.0
_TRIES = 2
"""A session that was lost during a kernel is repeated once: the server may have gone. If it is lost
twice, the kernel is the cause."""


class RemoteRunner:
    """The servers of one key. Servers may come and go; one that dies during a kernel costs a try.

    Each measurement in progress has its own client process; up to `slots` of them run at the same
    time, from as many threads. By default there is one more than servers: the one that waits keeps
    them busy, and uses a server that joins.
    """

    local = False

    def __init__(
        self,
        address: Address,
        key: str,
        *,
        device: str = "cpu",
        slots: int | None = None,
        wait_s: float = 120.0,
        timeout_s: float = 60.0,
        log_path: Path | None = None,
    ) -> None:
        found = tracker.summary(address)
        if not found.count(key):
            keys = ", ".join(sorted({server.key for server in found.servers})) or "none"
            raise RunError(
                msg(
                    "the tracker at {host}:{port} has no server for key '{key}'; keys it knows: "
                    "{keys}",
                    host=address[0],
                    port=address[1],
                    key=key,
                    keys=keys,
                )
            )
        self.address, self.key, self.device = address, key, device
        self.slots = slots or found.count(key) + 1
        self.wait_s = wait_s
        """How long to wait for a free server."""
        self.timeout_s = timeout_s
        self._log_path = log_path
        self._idle: SimpleQueue[Worker] = SimpleQueue()
        self._clients: list[Worker] = []
        self._closed = False
        # a process lives no longer than the thread that made it, and callers' threads may end
        self._maker = ThreadPoolExecutor(1, thread_name_prefix="farm-clients")

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
        """Return `repeat` values in seconds, each the mean of calls that take `min_repeat_ms` or
        more; fewer if the time limit does not suffice."""
        job = self._job(library, args, seed, timeout_s)
        values: tuple[float, ...] = self._somewhere(_MEASURE, timeout_s, job, repeat, min_repeat_ms)
        return values

    def outputs(self, library: Path, args: Arguments, seed: int) -> list[np.ndarray[Any, Any]]:
        """Return the arguments that one call changes, in order; `kernels.fill` fills all."""
        job = self._job(library, args, seed, self.timeout_s)
        arrays: list[np.ndarray[Any, Any]] = self._somewhere(_OUTPUTS, self.timeout_s, job)
        return arrays

    def device_info(self) -> Device | None:
        """Return a free server's description of its machine; None from TVM's plain server.

        All servers of a key are assumed to be equal, because the tracker also assumes so.
        """
        text = self._somewhere(_DESCRIBE, self.timeout_s, self.timeout_s)
        return None if text is None else decode(Device, json.loads(text))

    def pause(self) -> None:
        """Do nothing: servers use other cores than ours."""

    def close(self) -> None:
        """End all client processes; the servers stay."""
        self._closed = True
        self._maker.shutdown()
        for client in self._clients:
            client.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _job(self, library: Path, args: Arguments, seed: int, timeout_s: float) -> Job:
        if not library.is_file():
            raise RunError(msg("there is no library {library}", library=library))
        return Job(library=library, args=args, seed=seed, device=self.device, timeout_s=timeout_s)

    def _somewhere(
        self,
        function: Remote[Concatenate[Place, P], Answer],
        timeout_s: float,
        *args: P.args,
        **kw: P.kwargs,
    ) -> Any:
        """Ask one server after the other, until one answers or the kernel has had its tries."""
        lost: list[Text] = []
        end = time.monotonic() + self.wait_s
        while not self._closed:
            with self._client() as client:
                wait_s = max(1.0, end - time.monotonic())
                place = self._place(wait_s)
                client.timeout_s = timeout_s + _MARGIN_S
                try:
                    answer = client.call(function, place, *args, **kw)
                except WorkerDied as e:  # TVM's client sometimes ends the process to give up
                    answer = Answer(lost=e.reason)
            if answer.lost is None:
                return answer.value
            if answer.began:
                lost.append(msg("{place}: {reason}", place=str(place), reason=answer.lost))
                end = time.monotonic() + self.wait_s
            if len(lost) >= _TRIES:
                raise RunError(
                    msg(
                        "the server was lost {count} times: {lost}",
                        count=len(lost),
                        lost=clauses(lost),
                    )
                )
        raise RunError(msg("the farm's client was closed"))

    def _place(self, wait_s: float) -> Place:
        """Return a free server; wait for a tracker that restarts."""
        end = time.monotonic() + min(wait_s, _TRACKER_S)
        while True:
            try:
                return tracker.request(self.address, self.key, wait_s=wait_s)
            except NoTracker:
                if self._closed or time.monotonic() > end:
                    raise
                time.sleep(1.0)

    @contextlib.contextmanager
    def _client(self) -> Iterator[Worker]:
        """Yield a client process for exclusive use; one that has died is not used again."""
        try:
            client = self._idle.get_nowait()
        except Empty:
            client = self._maker.submit(self._started).result()
        try:
            yield client
        finally:
            if client.alive:
                self._idle.put(client)

    def _started(self) -> Worker:
        client = Worker("farm client", timeout_s=_START_TIMEOUT_S, log_path=self._log_path)
        self._clients.append(client)
        client.call(WARM)
        return client
