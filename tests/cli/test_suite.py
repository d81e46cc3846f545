"""`tvmscope suite` as a user runs it: what misbehaves is a row, and a killed suite goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from support.command import COMMAND, ENV, run

GOOD = """
import torch
class Model(torch.nn.Module):
    def __init__(self, k):
        super().__init__()
        self.k = k
    def forward(self, A): return torch.relu(A) * self.k
def get_init_inputs(): return [3.0]
def get_inputs(): return [torch.randn(4, 5)]
"""
PROBLEMS = {
    "a_good.py": (GOOD, "correct"),
    "b_segv.py": ("import ctypes; ctypes.string_at(0)", "crashed"),
    "c_hang.py": ("import time\nwhile True: time.sleep(1)", "timed out"),
    "d_memory.py": ("k = []\nwhile True: k.append(bytearray(b'x') * (1 << 26))", "out of memory"),
    "e_huge.py": (GOOD.replace("randn(4, 5)", "randn(1 << 40)"), "out of memory"),
    "f_disk.py": (
        "n = 0\nwhile True:\n  n += 1; open(f'fill{n}', 'wb').write(bytes(1 << 24))",
        "disk full",
    ),
    "g_garbage.py": (
        "import os\nos.write(1, bytes(range(256)) * 400)\nraise OSError('\\x1b[2J<script>')",
        "unloadable",
    ),
    "h_forks.py": (
        "import os, time\nif os.fork() == 0:\n  os.setsid(); time.sleep(987)\nos._exit(3)",
        "crashed",
    ),
    "i_server.py": ("import os, time\nos.kill(os.getppid(), 9); time.sleep(9)", "crashed"),
    "sub/z_good.py": (GOOD, "correct"),
}


def write(folder: Path, names: tuple[str, ...]) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(PROBLEMS[name][0])
    return folder


def outcomes(folder: Path) -> dict[str, str]:
    lines = (folder / "results.jsonl").read_text().splitlines()
    return {r["problem"]: r["outcome"] for r in map(json.loads, lines)}


FLAGS = ("--target", "cpu", "--iterations", "3", "--warmup", "1", "--no-profile")


def test_whatever_a_problem_does_is_a_row(tmp_path: Path) -> None:
    problems = write(tmp_path / "problems", tuple(PROBLEMS))
    limits = ("--timeout", "20s", "--memory", "1500M", "--disk", "200M")
    done = run("suite", "problems", "-o", "out", *FLAGS, *limits, cwd=tmp_path, timeout_s=300)
    assert done.returncode == 1, done.stderr
    assert outcomes(tmp_path / "out") == {n: outcome for n, (_, outcome) in PROBLEMS.items()}
    assert not any("987" in (p.info["cmdline"] or ()) for p in psutil.process_iter(["cmdline"]))
    assert "<script>" not in (tmp_path / "out/index.html").read_text().partition("<script>")[0]
    assert not (tmp_path / "out/.scratch").exists()
    assert not list(problems.glob("fill*"))
    assert "2 of 10 problems are right" in done.stderr

    (problems / "sub/z_good.py").write_text(GOOD + "\n# changed\n")
    before = (tmp_path / "out/results.jsonl").read_text()
    again = run("suite", "problems", "-o", "out", *FLAGS, *limits, "--compare", "out",
                cwd=tmp_path, timeout_s=300)  # fmt: skip
    assert "9 of 10 are done" in again.stderr
    added = (tmp_path / "out/results.jsonl").read_text().removeprefix(before).splitlines()
    assert [json.loads(line)["problem"] for line in added] == ["sub/z_good.py"]


def test_a_killed_suite_goes_on_where_it_was(tmp_path: Path) -> None:
    write(tmp_path / "problems", ("a_good.py", "c_hang.py", "sub/z_good.py"))
    args = ("suite", "problems", "-o", "out", *FLAGS, "--timeout", "20s")
    with subprocess.Popen([COMMAND, *args], cwd=tmp_path, env=ENV, stderr=-3) as process:
        end = time.monotonic() + 120
        while (
            not (tmp_path / "out/.scratch").is_dir()
            or not (tmp_path / "out/results.jsonl").is_file()
        ):
            assert time.monotonic() < end
            assert process.poll() is None
            time.sleep(0.05)
        family = psutil.Process(process.pid).children(recursive=True)
        other = run(*args, cwd=tmp_path)
        assert other.returncode == 2
        assert "another suite writes" in other.stderr
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    psutil.wait_procs(family, timeout=10)
    assert not any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in family)
    with (tmp_path / "out/results.jsonl").open("a") as stream:
        stream.write('{"problem": "c_ha')  # as if it had been killed while it wrote
    done = run(*args, "--exclude", "c_*", cwd=tmp_path, timeout_s=120)
    assert done.returncode == 0, done.stderr
    assert "1 of 2 are done" in done.stderr
    assert outcomes(tmp_path / "out") == {"a_good.py": "correct", "sub/z_good.py": "correct"}


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ((), "give a folder"),
        (("nowhere.py", "--shard", "5/4"), "--shard 5/4"),
        ((".", "--memory", "much"), "not a size"),
        ((".", "--backends", "nonsense"), "no backend named nonsense"),
    ],
)
def test_bad_requests(tmp_path: Path, args: tuple[str, ...], words: str) -> None:
    (tmp_path / "a.py").write_text(GOOD)
    done: subprocess.CompletedProcess[str] = run("suite", *args, cwd=tmp_path)
    assert done.returncode == 2
    assert words in done.stderr
