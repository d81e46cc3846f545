"""The part of a suite that runs inside a Dask worker: one problem, measured on its machine."""

from __future__ import annotations

import socket
import tempfile
import threading
from dataclasses import dataclass
from functools import cache, partial
from hashlib import sha256
from pathlib import Path

from tvmscope.core.session import FILE_NAME
from tvmscope.core.suite import to_line
from tvmscope.errors import RunError
from tvmscope.machine.environment import package_versions
from tvmscope.measure.fork_server import ForkServer
from tvmscope.messages import msg
from tvmscope.progress import Silent
from tvmscope.stages.options import Options
from tvmscope.stages.preload import fork_server
from tvmscope.stages.targets import threads_of
from tvmscope.workflow.suiting.options import SuiteOptions
from tvmscope.workflow.suiting.plans import Planned
from tvmscope.workflow.suiting.problem import examine, run_problem
from tvmscope.workflow.suiting.problems import Problem
from tvmscope.workflow.suiting.store import opened

_ONE_AT_A_TIME = threading.Lock()


@dataclass(frozen=True, kw_only=True)
class Parcel:
    """A problem to be sent; plain data."""

    problem: Problem
    options: Options
    how: SuiteOptions
    key: str
    digest: str | None

    @classmethod
    def of(cls, plan: Planned, how: SuiteOptions, digest: str | None) -> Parcel:
        """Return the data that a worker needs."""
        return cls(problem=plan.problem, options=plan.options, how=how, key=plan.key, digest=digest)


def describe() -> tuple[str, dict[str, str]]:
    """Return this machine's identity, and its versions."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    running = boot.read_text().strip() if boot.is_file() else ""
    return f"{socket.gethostname()} {running}", package_versions()


def measure(parcel: Parcel, content: bytes | None) -> tuple[str, str | None]:
    """Return the row and the session, as JSON texts."""
    with (
        _ONE_AT_A_TIME,
        tempfile.TemporaryDirectory(prefix="tvmscope-", ignore_cleanup_errors=True) as folder,
        opened(Path(folder) / "suite") as store,
    ):
        problem = _unpacked(parcel, content, Path(folder) / "files")
        server = _server(threads_of(parcel.options)) if parcel.how.fork else None
        examiner = partial(examine, parcel.how.profile)
        row = run_problem(
            problem, parcel.key, parcel.options, parcel.how, store, server, Silent(), examiner
        )
        session = store.session_folder(problem.name) / FILE_NAME
        text = session.read_text(encoding="utf-8") if session.is_file() else None
        return to_line(row), text


def _unpacked(parcel: Parcel, content: bytes | None, folder: Path) -> Problem:
    """Return the problem with its file on this machine."""
    problem = parcel.problem
    if problem.file is None or content is None:
        return problem
    if sha256(content).hexdigest() != parcel.digest:
        raise RunError(msg("{name} changed on its way", name=problem.name))
    folder.mkdir()
    file = folder / problem.file.name
    file.write_bytes(content)
    return Problem(name=problem.name, source=f"{file}{problem.more}", file=file, more=problem.more)


@cache
def _server(threads: int) -> ForkServer:
    """Return one server for all problems that this process measures; it ends with it."""
    return fork_server(threads)
