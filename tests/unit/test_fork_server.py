"""Workers from a fork server, and the limits of all workers."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from support import evil
from tvmscope.errors import RunError
from tvmscope.measure.confinement import Confinement, confined
from tvmscope.measure.fork_server import ForkServer
from tvmscope.measure.remote import here
from tvmscope.measure.worker import Worker, WorkerDied


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    with ForkServer(here(evil.import_marker), {"FROM_SERVER": "1"}) as made:
        yield made


@pytest.fixture(params=["forked", "spawned"])
def any_server(request: pytest.FixtureRequest, server: ForkServer) -> ForkServer | None:
    return server if request.param == "forked" else None


def gone(pid: int, within_s: float = 5.0) -> bool:
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.02)
    return False


def test_a_worker_has_what_the_server_imported_and_one_thread(server: ForkServer) -> None:
    with confined(Confinement(server=server)), Worker("w", env={"OWN": "2"}) as worker:
        assert worker.call(here(evil.has_marker)) == (True, 1)
        assert worker.call(here(evil.environment), "OWN") == "2"
        assert worker.call(here(evil.environment), "FROM_SERVER") == "1"
        assert worker.pid != server.pid


def test_a_worker_has_its_parents_folder_and_variables(
    any_server: ForkServer | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if any_server is not None:
        any_server.start()  # somewhere else, and without the variable
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SET_LATER", "3")
    with confined(Confinement(server=any_server)), Worker("w") as worker:
        assert worker.call(here(evil.places))[0] == str(tmp_path)
        assert worker.call(here(evil.environment), "SET_LATER") == "3"


def test_outside_of_a_confinement_workers_are_spawned() -> None:
    with Worker("w") as worker:
        assert worker.call(here(evil.has_marker)) == (False, 1)


def test_a_worker_can_be_spawned_beside_a_server(server: ForkServer) -> None:
    with confined(Confinement(server=server)), Worker("w", fork=False) as worker:
        assert worker.call(here(evil.has_marker)) == (False, 1)


def test_a_crash_is_told_and_the_next_worker_is_fresh(server: ForkServer) -> None:
    with confined(Confinement(server=server)):
        with pytest.raises(WorkerDied, match="signal 6") as died, Worker("w") as worker:
            worker.call(here(evil.abort))
        assert died.value.kind == "crash"
        with Worker("w") as worker:
            assert worker.call(here(evil.has_marker))[0]


def test_a_killed_server_starts_again() -> None:
    with ForkServer(here(evil.import_marker), {}) as own, confined(Confinement(server=own)):
        with pytest.raises(WorkerDied) as died, Worker("w") as worker:
            worker.call(here(evil.kill_parent))
        assert died.value.kind == "crash"
        with Worker("w") as worker:
            assert worker.call(here(evil.has_marker))[0]


def test_a_server_with_threads_refuses_to_fork() -> None:
    with ForkServer(here(evil.start_thread), {}) as own, pytest.raises(RunError, match="2 threads"):
        own.start()


def test_what_a_worker_leaves_behind_ends_with_it(server: ForkServer) -> None:
    with confined(Confinement(server=server)):
        with Worker("w") as worker:
            pid = worker.call(here(evil.leave_daemon))
            assert psutil.pid_exists(pid)
        assert gone(pid)


def test_workers_end_with_the_server() -> None:
    with ForkServer(here(evil.nothing), {}) as own, confined(Confinement(server=own)):
        worker = Worker("w")
        worker.pause()
        pid = worker.pid
    assert gone(pid)
    worker.kill()


def test_an_allocation_over_the_limit_is_out_of_memory(any_server: ForkServer | None) -> None:
    limits = Confinement(server=any_server, memory_bytes=200 << 20)
    with confined(limits):
        with Worker("w") as worker:
            assert worker.call(here(evil.allocate), 50 << 20) == 50 << 20
        with pytest.raises(WorkerDied, match="out of memory") as died, Worker("w") as worker:
            worker.call(here(evil.allocate), 1 << 30)
    assert died.value.kind == "memory"


def test_the_memory_of_children_counts(any_server: ForkServer | None) -> None:
    limits = Confinement(server=any_server, memory_bytes=100 << 20)
    with (
        confined(limits),
        pytest.raises(WorkerDied, match=r"the limit is 100") as died,
        Worker("w") as worker,
    ):
        worker.call(here(evil.children_allocate), 4, 60 << 20)
    assert died.value.kind == "memory"


def test_a_need_that_cannot_be_met_ends_a_worker_before_it_loads() -> None:
    with confined(Confinement(memory_bytes=1 << 20)), Worker("w") as worker:
        worker.must_fit(1 << 10)
        with pytest.raises(WorkerDied, match=r"needs at least 1\.00 GiB") as died:
            worker.must_fit(1 << 30)
    assert died.value.kind == "memory"


def test_the_deadline_holds_for_all_requests_together(any_server: ForkServer | None) -> None:
    limits = Confinement(server=any_server, deadline=time.monotonic() + 3.0)
    with (
        confined(limits),
        pytest.raises(WorkerDied, match="time limit") as died,
        Worker("w") as worker,
    ):
        worker.call(here(evil.sleep))
    assert died.value.kind == "time"
    assert time.monotonic() < limits.deadline + 2.0  # type: ignore[operator]


def test_files_over_the_limit_end_the_worker(tmp_path: Path) -> None:
    limits = Confinement(disk_bytes=20 << 20, scratch=tmp_path, enter=True)
    with (
        confined(limits),
        pytest.raises(WorkerDied, match="of files") as died,
        Worker("w") as worker,
    ):
        worker.call(here(evil.fill_many))
    assert died.value.kind == "disk"
    assert list(tmp_path.iterdir())


def test_one_file_over_the_limit_is_an_error(tmp_path: Path) -> None:
    limits = Confinement(disk_bytes=20 << 20, scratch=tmp_path, enter=True)
    with (
        confined(limits),
        pytest.raises(RunError, match=r"too large|of files"),
        Worker("w") as worker,
    ):
        worker.call(here(evil.fill), "big")


def test_the_scratch_folder_is_where_a_worker_is(
    tmp_path: Path, any_server: ForkServer | None
) -> None:
    limits = Confinement(server=any_server, scratch=tmp_path, enter=True)
    with confined(limits), Worker("w") as worker:
        assert worker.call(here(evil.places)) == (str(tmp_path), str(tmp_path))
    with confined(Confinement(scratch=tmp_path)), Worker("w") as worker:
        assert worker.call(here(evil.places)) == (os.getcwd(), str(tmp_path))


def test_the_kernel_would_kill_workers_first(any_server: ForkServer | None) -> None:
    own = int(Path("/proc/self/oom_score_adj").read_text())
    with confined(Confinement(server=any_server)), Worker("w") as worker:
        assert worker.call(here(evil.oom_score)) == 1000 > own
