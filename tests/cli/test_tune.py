"""`tvmscope tune` as users run it: the plan, a short search, going on, stopping, and the rows."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from support import onnx_nets
from support.command import COMMAND, ENV, refuses, run
from tvmscope.core.session import load
from tvmscope.machine import cpu_features, cuda_device
from tvmscope.tuning.records.database import Database

TUNE = ("tune", "net.onnx", "--target", "cpu", "--no-metaschedule", "--min-repeat-ms", "2")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    onnx_nets.two_convolutions(tmp_path / "net.onnx")
    return tmp_path


def trials(folder: Path) -> list[str]:
    (file,) = (folder / "tuning_logs").glob("*/records.jsonl")
    return [t.candidate.id + t.workload for t in Database(file).trials() if t.stage == "search"]


def test_a_dry_run_says_what_is_worth_tuning_and_what_is_not(folder: Path) -> None:
    done = run(*TUNE, "--dry-run", "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    tasks = json.loads(done.stdout)["tuning"]
    assert all(t["trials"] == 0 for t in tasks)
    heavy = [t for t in tasks if t["rule"] == "conv2d"]
    assert heavy
    assert all(0 < t["share"] < 1.5 and t["candidates"] > 1 for t in heavy)
    for task in heavy:
        if task["note"]:  # beside other work, a roof may be measured as low as the kernel's speed
            assert task["note"] == "at its roof"
            assert "not tuned, at its roof" in done.stderr
        else:
            assert task["workload"].partition(" stride")[0] in done.stderr
            assert "would be tuned" in done.stderr
    assert not (folder / "results").exists()
    assert not (folder / "tuning_logs").exists()


def test_two_runs_try_different_candidates_and_end_with_a_proof(folder: Path) -> None:
    for number in (1, 2):
        done = run(*TUNE, "--trials", "6", "-o", f"run{number}", cwd=folder, timeout_s=300)
        assert done.returncode == 0, done.stderr
        assert "trials in this run" in done.stderr
    tried = trials(folder)
    assert len(tried) == 12
    assert len(set(tried)) == 12
    session = load(folder / "run2")
    assert session.complete
    assert sum(t.trials for t in session.tuning) == 6
    assert sum(t.earlier for t in session.tuning) == 6
    assert (folder / "run2" / "report.html").is_file()
    used = [t for t in session.tuning if t.chosen is not None]
    assert bool(used) == ("the tuned model is used" in done.stderr)
    if used:  # on a busy machine nothing may be surely faster
        assert [r.task.variant.backend for r in session.results] == ["tvmscope", "tvmscope-tuned"]


@pytest.mark.slow
def test_twice_a_hundred_trials_are_two_hundred(tmp_path: Path) -> None:
    for name, sizes in (("two", (100, 100)), ("one", (200,))):
        folder = tmp_path / name
        folder.mkdir()
        onnx_nets.two_convolutions(folder / "net.onnx")
        for number, size in enumerate(sizes):
            command = ("tune", "net.onnx", "--target", "cpu", "--min-repeat-ms", "2")
            asked = ("--trials", str(size), "-o", f"run{number}")
            done = run(*command, *asked, cwd=folder, timeout_s=900)
            assert done.returncode == 0, done.stderr
        assert len(trials(folder)) == len(set(trials(folder))) == 200


@contextmanager
def tuning(folder: Path, *command: str) -> Iterator[subprocess.Popen[str]]:
    """The command, once it has begun to search."""
    process = subprocess.Popen(
        [COMMAND, *command, "-o", "session"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder, env=ENV,
    )  # fmt: skip
    try:
        assert process.stderr is not None
        for line in process.stderr:
            if "Task " in line:
                break
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    "how",
    [signal.SIGINT, pytest.param(signal.SIGKILL, marks=pytest.mark.slow)],  # long
)
def test_a_stopped_run_keeps_its_trials_and_leaves_no_process(
    folder: Path, how: signal.Signals
) -> None:
    with tuning(folder, *TUNE, "--budget", "1h") as process:
        workers = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(how)
        _, err = process.communicate(timeout=30)
    assert psutil.wait_procs(workers, timeout=5)[1] == []
    kept = len(trials(folder))
    assert kept > 0
    if how == signal.SIGINT:
        assert process.returncode == 130
        assert err.splitlines()[-1] == "error: interrupted; session: session"
        assert sum(t.trials for t in load(folder / "session").tuning) == kept
    plan = run(*TUNE, "--dry-run", "--json", cwd=folder)
    assert sum(t["earlier"] for t in json.loads(plan.stdout)["tuning"]) == kept


@pytest.mark.slow  # long
@pytest.mark.parametrize("command", [pytest.param("analyze", marks=pytest.mark.slow), "compile"])
def test_a_command_stopped_while_it_tunes_first_keeps_the_trials(
    folder: Path, command: str
) -> None:
    with tuning(folder, command, "net.onnx", "--target", "cpu", "--tune", "1h") as process:
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "error: interrupted; session: " in err.splitlines()[-1]
    assert trials(folder)


def test_bad_requests_are_refused(folder: Path) -> None:
    refuses(run(*TUNE, "--db", "none", cwd=folder), 2, "--db none")
    refuses(run(*TUNE, "--budget", "soon", cwd=folder), 2, "not a duration")
    refuses(run(*TUNE, "--target", "arm64:cortex-a72", cwd=folder), 2, "one target")


@pytest.mark.parametrize("target, why", [
    ("cuda:sm_90", "no CUDA device here"),
    ("arm64:cortex-a72", "aarch64"),
])  # fmt: skip
def test_a_target_that_does_not_run_here_needs_a_farm(folder: Path, target: str, why: str) -> None:
    if target.startswith("cuda") and cuda_device.find():
        pytest.skip("a GPU is here")
    done = run("tune", "net.onnx", "--target", target, cwd=folder)
    refuses(done, 2, f"{target.split(':')[1]} cannot be tuned here", why, "--tracker", "--dry-run")


def test_a_dry_run_lists_the_tasks_of_a_gpu_that_is_not_here(folder: Path) -> None:
    if cuda_device.find():
        pytest.skip("a GPU is here")
    done = run("tune", "net.onnx", "--target", "cuda", "--dry-run", "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "the times are unknown: no CUDA device here" in done.stderr
    first, *_ = json.loads(done.stdout)["tuning"]
    assert "conv2d" in first["kernel"]
    assert (first["total_s"], first["expected_s"], first["note"]) == (0, None, "")
    assert not (folder / "tuning_logs").exists()


@pytest.mark.slow  # long
def test_a_narrower_cpu_is_tuned_here_and_its_records_are_its_own(folder: Path) -> None:
    if "avx2" not in cpu_features.reported():
        pytest.skip("x86-64-v3 does not run here")
    narrow = ("tune", "net.onnx", "--target", "cpu:x86-64-v3", *TUNE[4:])
    done = run(*narrow, "--trials", "4", "-o", "session", cwd=folder, timeout_s=300)
    assert done.returncode == 0, done.stderr
    (file,) = (folder / "tuning_logs").glob("cpu_x86-64-v3/records.jsonl")
    found = [t for t in Database(file).trials() if t.stage == "search"]
    assert len(found) == 4
    assert {(t.status, t.target.arch, t.target.vector_bits) for t in found} == {
        ("ok", "x86-64-v3", 256)
    }
