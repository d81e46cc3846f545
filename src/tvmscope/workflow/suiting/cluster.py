"""Runs a suite's problems on a Dask cluster: one at a time on each machine, each on one machine.

Files are sent by their digest, rows and sessions come back. A lost worker costs only time: its
problem goes to another one.
"""

from __future__ import annotations

import ipaddress
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tvmscope.core.session import FILE_NAME
from tvmscope.core.suite import Outcome, SuiteRow, from_line
from tvmscope.errors import RunError, UsageError, one_line
from tvmscope.extras import require
from tvmscope.machine import environment
from tvmscope.messages import msg
from tvmscope.progress import Progress
from tvmscope.storage.files import digest_file, write_text_atomic
from tvmscope.workflow.suiting import cluster_worker
from tvmscope.workflow.suiting.cluster_worker import Parcel
from tvmscope.workflow.suiting.options import SuiteOptions
from tvmscope.workflow.suiting.plans import Planned
from tvmscope.workflow.suiting.rows import failed_row
from tvmscope.workflow.suiting.store import Store

PATIENCE_S = 60.0
"""How long to wait for a machine if there is none."""
ATTEMPTS = 2
"""Workers that a problem may lose before its row says so."""
_LOOK_S = 1.0
_MUST_MATCH = ("tvmscope", "apache-tvm", "torch", "onnxruntime")


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """The scheduler's address, and our credentials."""

    scheduler: str
    tls_ca: Path | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None

    def security(self) -> Any:
        """Return Dask's TLS settings; raise for an open connection to another machine."""
        parts = urlsplit(self.scheduler)
        if parts.scheme == "tls":
            from distributed.security import Security

            files = {
                "tls_ca_file": self.tls_ca,
                "tls_client_cert": self.tls_cert,
                "tls_client_key": self.tls_key,
            }
            given = {name: str(file) for name, file in files.items() if file is not None}
            return Security(require_encryption=True, **given)
        if parts.scheme != "tcp" or parts.hostname is None or parts.port is None:
            raise UsageError(
                msg("--scheduler {text}: write tcp://127.0.0.1:8786", text=self.scheduler)
            )
        if not _is_loopback(parts.hostname):
            raise UsageError(
                msg(
                    "--scheduler {text}: problems are code; another machine needs tls://, with "
                    "--tls-ca, --tls-cert and --tls-key",
                    text=self.scheduler,
                )
            )
        return None


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@dataclass(kw_only=True)
class _Running:
    plan: Planned
    machine: str
    address: str
    since: float


class _Run:
    """A connection with the waiting and the running problems."""

    def __init__(self, client: Any, plans: Sequence[Planned], how: SuiteOptions) -> None:
        self.client = client
        self.how = how
        self.waiting = deque(plans)
        self.running: dict[Any, _Running] = {}
        self.attempts: dict[str, int] = {}
        self.files: dict[str, Any] = {}
        self.machine_of: dict[str, str] = {}
        self.without_since = time.monotonic()

    def machines(self) -> dict[str, list[str]]:
        """Return the current worker addresses of each machine, from the scheduler."""
        known = list(self.client.scheduler_info(n_workers=-1).get("workers", ()))
        if fresh := [address for address in known if address not in self.machine_of]:
            told = self.client.run(cluster_worker.describe, workers=fresh, on_error="ignore")
            for address, (machine, versions) in told.items():
                _check_versions(address, versions)
                self.machine_of[address] = machine
        found: dict[str, list[str]] = {}
        for address in known:
            if address in self.machine_of:
                found.setdefault(self.machine_of[address], []).append(address)
        return found

    def submit(self, machines: dict[str, list[str]]) -> None:
        """Submit a problem to each idle machine."""
        busy = {each.machine for each in self.running.values()}
        for machine, addresses in machines.items():
            if machine in busy or not self.waiting:
                continue
            plan = self.waiting.popleft()
            attempt = self.attempts[plan.key] = self.attempts.get(plan.key, 0) + 1
            future = self.client.submit(
                cluster_worker.measure,
                Parcel.of(plan, self.how, self._digest(plan)),
                self._file(plan, addresses[0]),
                key=f"tvmscope-{plan.key}-{attempt}",
                workers=[addresses[0]],  # we decide about another try
                allow_other_workers=False,
                pure=False,
            )
            self.running[future] = _Running(
                plan=plan, machine=machine, address=addresses[0], since=time.monotonic()
            )

    def _digest(self, plan: Planned) -> str | None:
        return None if plan.problem.file is None else digest_file(plan.problem.file)

    def _file(self, plan: Planned, address: str) -> Any:
        """Return the file's content on the cluster; equal files are sent once to a worker."""
        digest = self._digest(plan)
        if digest is None or plan.problem.file is None:
            return None
        key = f"{digest} {address}"  # the data of another worker are lost with it
        if key not in self.files:
            content = plan.problem.file.read_bytes()
            self.files[key] = self.client.scatter(content, workers=[address], hash=False)
        return self.files[key]

    def ended(self, machines: dict[str, list[str]]) -> Iterator[tuple[Planned, Any]]:
        """Yield the problems that ended, with their futures; with None if the worker is lost."""
        limit_s = 2 * self.how.timeout_s + PATIENCE_S
        for future, each in list(self.running.items()):
            lost = each.address not in machines.get(each.machine, ())
            late = time.monotonic() - each.since > limit_s
            if future.done() or lost or late:
                del self.running[future]
                answered = future.status == "finished" or _raised(future) is not None
                if not answered:
                    future.cancel(force=True)
                yield each.plan, future if answered else None

    def check_patience(self, machines: dict[str, list[str]]) -> None:
        """Raise if there is no worker for too long."""
        if machines:
            self.without_since = time.monotonic()
        elif time.monotonic() - self.without_since > PATIENCE_S:
            raise RunError(msg("the cluster has no workers; start dask worker on its machines"))


def run_on_cluster(
    plans: Sequence[Planned],
    how: SuiteOptions,
    store: Store,
    cluster: Cluster,
    progress: Progress,
) -> Iterator[SuiteRow]:
    """Yield the rows as they come; sessions are written into the store's folder."""
    require("distributed", why="suite --scheduler")
    from distributed import Client

    try:
        client = Client(cluster.scheduler, security=cluster.security(), timeout="20s")
    except OSError as e:
        raise RunError(
            msg(
                "no scheduler answers at {address}: {reason}",
                address=cluster.scheduler,
                reason=one_line(e),
            )
        ) from e
    with client:
        run = _Run(client, plans, how)
        while run.waiting or run.running:
            machines = run.machines()
            run.check_patience(machines)
            run.submit(machines)
            for plan, future in run.ended(machines):
                if future is not None:
                    yield _row(plan, future, store)
                elif run.attempts[plan.key] < ATTEMPTS:
                    progress.note(msg("{name}: its worker was lost", name=plan.problem.name))
                    run.waiting.append(plan)
                else:
                    yield _lost(plan)
            if not any(future.done() for future in run.running):
                time.sleep(_LOOK_S / 5)


def _raised(future: Any) -> BaseException | None:
    """The error with which a task ended on a worker that is still there."""
    from distributed import CancelledError, KilledWorker

    error: BaseException | None = future.exception() if future.status == "error" else None
    return None if isinstance(error, KilledWorker | CancelledError) else error


def _row(plan: Planned, future: Any, store: Store) -> SuiteRow:
    """Return the row of a problem that came back."""
    if (error := _raised(future)) is not None:
        reason = msg("the cluster could not run it: {reason}", reason=one_line(error))
        return _ended(plan, RunError(reason), "failed")
    row_text, session_text = future.result()
    if session_text is not None:
        folder = store.session_folder(plan.problem.name)
        write_text_atomic(folder / FILE_NAME, session_text)
    return from_line(row_text)


def _lost(plan: Planned) -> SuiteRow:
    reason = msg("{count} workers of the cluster were lost with it", count=ATTEMPTS)
    return _ended(plan, RunError(reason), "crashed")


def _ended(plan: Planned, error: RunError, outcome: Outcome) -> SuiteRow:
    return replace(
        failed_row(
            error,
            problem=plan.problem.name,
            key=plan.key,
            took_s=0.0,
            environment=environment.collect(1),
        ),
        outcome=outcome,
    )


def _check_versions(address: str, theirs: dict[str, str]) -> None:
    ours = environment.package_versions()
    other = [name for name in _MUST_MATCH if ours.get(name) != theirs.get(name)]
    if other:
        raise UsageError(
            msg(
                "the worker at {address} has other versions than this machine: {packages}",
                address=address,
                packages=[
                    msg(
                        "{package} {theirs} ({ours} here)",
                        package=n,
                        theirs=theirs.get(n, "-"),
                        ours=ours.get(n, "-"),
                    )
                    for n in other
                ],
            )
        )
