"""Ctrl-C keeps what was measured, says so, and leaves no process behind."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from support.command import COMMAND, ENV, TORCH_NET, run


@contextmanager
def analyzing(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """An analysis that would take minutes."""
    (folder / "net.py").write_text(TORCH_NET)
    process = subprocess.Popen(
        [COMMAND, "analyze", "net.py", "-o", "session", "--target", "cpu", "--duration", "10m",
         "--backends", "tvmscope,onnxruntime"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder, env=ENV,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def read_until(process: subprocess.Popen[str], text: str) -> str:
    assert process.stderr is not None
    seen = ""
    for line in process.stderr:
        seen += line
        if text in line:
            return seen
    raise AssertionError(f"'{text}' never came:\n{seen}")


def interrupt(process: subprocess.Popen[str]) -> tuple[str, list[psutil.Process]]:
    """Ctrl-C; what it said, and the processes that it had started and that are still there."""
    workers = psutil.Process(process.pid).children(recursive=True)
    assert workers
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert out == ""
    _, alive = psutil.wait_procs(workers, timeout=5)
    return err, alive


def test_ctrl_c_while_measuring_keeps_the_rounds(tmp_path: Path) -> None:
    with analyzing(tmp_path) as process:
        read_until(process, "measure: 2 in turns")
        file = tmp_path / "session" / "session.json"
        deadline = time.monotonic() + 60
        while not any("median_s" in r for r in json.loads(file.read_text())["results"]):
            assert time.monotonic() < deadline, "no round was measured"
            time.sleep(0.2)
        err, alive = interrupt(process)
    assert process.returncode == 130
    assert alive == []
    assert err.splitlines()[-1] == "error: interrupted; session: session"
    assert "Traceback" not in err
    shown = run("report", "session", cwd=tmp_path)
    assert shown.returncode == 0
    assert "this session was interrupted" in shown.stdout
    assert "interrupted after" in shown.stdout
    session = json.loads(run("report", "session", "--json", cwd=tmp_path).stdout)
    assert session["complete"] is False
    assert [r["status"] for r in session["results"]] == ["ok", "ok"]
    assert all(r["median_s"] > 0 for r in session["results"])


@pytest.mark.parametrize(
    ("stage", "kept"),
    [("load: net.py", "nothing was saved yet"), ("compile: tvmscope", "session: session")],
)
def test_ctrl_c_before_measuring_leaves_nothing_broken(
    stage: str, kept: str, tmp_path: Path
) -> None:
    with analyzing(tmp_path) as process:
        read_until(process, stage)
        time.sleep(1)  # the worker has started by then, and is far from done
        err, alive = interrupt(process)
    assert process.returncode == 130
    assert alive == []
    assert err.splitlines()[-1] == f"error: interrupted; {kept}"
    if stage.startswith("load"):
        assert not (tmp_path / "session").exists()
        return
    shown = run("report", "session", cwd=tmp_path)
    assert shown.returncode == 0
    assert "this session was interrupted" in shown.stdout
