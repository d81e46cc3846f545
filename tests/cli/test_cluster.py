"""Suites on a Dask cluster of local workers, one of which is killed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import cluster_jobs
from support.command import ENV, run
from tvmscope.core.suite import SuiteRow
from tvmscope.errors import RunError, UsageError
from tvmscope.progress import Silent
from tvmscope.stages.options import Options
from tvmscope.workflow.suiting import cluster, cluster_worker
from tvmscope.workflow.suiting.cluster import Cluster
from tvmscope.workflow.suiting.options import SuiteOptions
from tvmscope.workflow.suiting.problems import find
from tvmscope.workflow.suiting.run import run_suite

pytest.importorskip("distributed")
DASK = (sys.executable, "-m", "dask")
FINDS_TESTS = {**ENV, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
"""Workers import what stands for measuring here."""


class Local:
    """A scheduler and workers as a user starts them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: list[subprocess.Popen[bytes]] = []
        self.file = folder / "scheduler.json"
        self.start("scheduler", "--host", "127.0.0.1", "--port", "0")
        wait_for(self.file)

    def start(self, kind: str, *more: str) -> subprocess.Popen[bytes]:
        args = (*DASK, kind, "--scheduler-file", str(self.file), "--no-dashboard", *more)
        if kind == "worker":
            args += ("--no-nanny", "--nthreads", "2", "--local-directory", str(self.folder))
        quiet = subprocess.DEVNULL
        process = subprocess.Popen(args, env=FINDS_TESTS, stdout=quiet, stderr=quiet)
        self.processes.append(process)
        return process

    @property
    def address(self) -> str:
        import json

        return str(json.loads(self.file.read_text())["address"])

    def close(self) -> None:
        for process in reversed(self.processes):
            process.kill()
            process.wait()


def wait_for(file: Path, limit_s: float = 60.0) -> str:
    end = time.monotonic() + limit_s
    while not file.is_file() or not file.read_text():
        assert time.monotonic() < end, f"{file.name} did not come"
        time.sleep(0.02)
    return file.read_text()


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Local]:
    made = Local(tmp_path)
    try:
        yield made
    finally:
        made.close()


def problems(folder: Path, **content: str) -> Path:
    place = folder / "problems"
    place.mkdir()
    for name, text in content.items():
        (place / f"{name}.py").write_text(text)
    return place


def test_a_lost_workers_problem_goes_to_another(
    tmp_path: Path, local: Local, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_worker, "measure", cluster_jobs.measure)
    gate = tmp_path / "gate"
    place = problems(tmp_path, a="1", b=f"wait {gate}", c="die", d="2")
    workers = [local.start("worker") for _ in range(4)]
    rows: list[SuiteRow] = []

    def suite() -> None:
        rows.extend(
            run_suite(
                find([str(place)]), Options(), SuiteOptions(), tmp_path / "out", Silent(),
                cluster=Cluster(scheduler=local.address),
            )
        )  # fmt: skip

    thread = threading.Thread(target=suite, daemon=True)
    thread.start()
    first = int(wait_for(gate.with_name("gate.begun")))
    assert first in [worker.pid for worker in workers]
    os.kill(first, signal.SIGKILL)
    gate.write_text("open")
    thread.join(60)
    assert not thread.is_alive()
    found = {row.problem: row for row in rows}
    assert [found[n].outcome for n in ("a.py", "b.py", "d.py")] == ["correct"] * 3
    assert found["b.py"].reason != str(first)
    assert found["c.py"].outcome == "crashed"
    assert "2 workers of the cluster were lost" in str(found["c.py"].reason)
    assert (tmp_path / "out/sessions/a.py/session.json").is_file()


def test_an_error_on_a_worker_is_the_rows_reason(
    tmp_path: Path, local: Local, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_worker, "measure", cluster_jobs.measure)
    place = problems(tmp_path, a="raise no such thing", b="1")
    local.start("worker")
    rows = run_suite(
        find([str(place)]), Options(), SuiteOptions(), tmp_path / "out", Silent(),
        cluster=Cluster(scheduler=local.address),
    )  # fmt: skip
    found = {row.problem: row for row in rows}
    assert found["b.py"].outcome == "correct"
    assert found["a.py"].outcome == "failed"
    assert "could not run it: no such thing" in str(found["a.py"].reason)


def test_no_workers_is_an_error(
    tmp_path: Path, local: Local, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "PATIENCE_S", 0.5)
    place = problems(tmp_path, a="1")
    with pytest.raises(RunError, match="no workers"):
        run_suite(
            find([str(place)]), Options(), SuiteOptions(), tmp_path / "out", Silent(),
            cluster=Cluster(scheduler=local.address),
        )  # fmt: skip


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("tcp://10.0.0.1:8786", "needs tls://"),
        ("tcp://example.com:8786", "needs tls://"),
        ("http://127.0.0.1:8786", "write tcp://"),
        ("127.0.0.1", "write tcp://"),
    ],
)
def test_an_open_connection_to_another_machine_is_refused(address: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Cluster(scheduler=address).security()


def test_tls_asks_for_encryption(tmp_path: Path) -> None:
    made = Cluster(scheduler="tls://10.0.0.1:8786", tls_ca=tmp_path / "ca.pem").security()
    assert made.require_encryption
    assert made.tls_ca_file == str(tmp_path / "ca.pem")


@pytest.mark.slow
def test_problems_are_measured_on_a_cluster(tmp_path: Path, local: Local) -> None:
    root = Path(__file__).parents[2] / "benchmarks/problems"
    place = tmp_path / "problems"
    place.mkdir()
    for name in ("operators/softmax.py", "chains/linear_relu_div.py", "operators/relu.py"):
        shutil.copy(root / name, place)
    for _ in range(2):
        local.start("worker")
    args = ("suite", "problems", "-o", "out", "--target", "cpu", "--iterations", "3")
    done = run(*args, "--scheduler", local.address, cwd=tmp_path, timeout_s=300)
    assert done.returncode == 0, done.stderr
    assert "3 of 3 problems are right" in done.stderr
