"""`tvmscope learn` and `tvmscope lab`, run as users run them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.command import refuses, run

LAB = """
from tvm.script import tirx as T

@T.prim_func(s_tir=True)
def main(A: T.Buffer((64, 64), "float32"), C: T.Buffer((64, 64), "float32")):
    for i, j in T.grid(64, 64):
        with T.sblock("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = A[vi, vj] * T.float32(2)

def schedule(sch, factor=16):
    i, j = sch.get_loops("C")
    j_o, j_i = sch.split(j, factors=[None, factor])
    sch.vectorize(j_i)
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    found = tmp_path / "mine.py"
    found.write_text(LAB)
    return found


def test_without_a_name_the_lessons_are_listed() -> None:
    done = run("learn")
    assert done.returncode == 0
    assert "conv2d" in done.stdout
    assert "split: one loop becomes two" in done.stdout
    assert set(json.loads(run("learn", "--json").stdout)["lessons"]) >= {"split", "matmul"}


def test_a_lesson_shows_loops_time_and_reasons_and_writes_its_plot(tmp_path: Path) -> None:
    plot = tmp_path / "plot.svg"
    done = run("learn", "split", "--size", "48", "--threads", "1", "--ir", "--asm", "-o", str(plot))
    assert done.returncode == 0, done.stderr
    for part in (
        "serial j_0 x ",
        "vectorized j_1 x ",
        "right (",
        "T.vectorized",
        "innermost machine loop after",
        "GFLOP/s",
        "Exercise",
    ):
        assert part in done.stdout
    assert "<svg" in plot.read_text()
    refuses(run("learn", "split", "-o", str(plot)), 2, "exists; --force")


def test_a_sweep_compares_every_value_with_the_best() -> None:
    done = run("learn", "split", "--size", "48", "--threads", "1", "--set", "factor=4,16", "--json")
    assert done.returncode == 0, done.stderr
    steps = json.loads(done.stdout)["steps"]
    assert [step["params"]["factor"] for step in steps] == [4, 16]
    assert all(step["median_s"] > 0 and step["error"] < 1e-4 for step in steps)
    assert sorted(step["verdict"] is None for step in steps) == [False, True]


def test_answers_are_checked() -> None:
    assert run("learn", "reorder", "--size", "100", "--answer", "400").returncode == 0
    wrong = run("learn", "reorder", "--size", "100", "--answer", "7")
    assert wrong.returncode == 1
    assert "too small" in wrong.stdout


def test_unknown_names_are_refused() -> None:
    refuses(run("learn", "spilt", "-q"), 2, "did you mean split")
    refuses(run("learn", "split", "--set", "factor=x", "-q"), 2, "write name=8")
    unknown = run("learn", "split", "--set", "fcator=3", "-q")
    assert unknown.returncode == 2
    assert "has no parameter 'fcator'" in unknown.stderr


def test_the_readers_file_is_measured(file: Path) -> None:
    done = run("lab", str(file), "--threads", "1")
    assert done.returncode == 0, done.stderr
    assert "sch.vectorize(j_i)" in done.stdout
    assert "vectorized j_1 x 16" in done.stdout


def test_the_help_says_that_the_file_is_executed() -> None:
    assert "IS EXECUTED" in run("lab", "--help").stdout


def test_what_is_wrong_with_a_file_is_said(file: Path) -> None:
    file.write_text(LAB + "\ndef reference(a):\n    return a * 3\n")
    done = run("lab", str(file), "--threads", "1", "--sweep", "factor=8,32")
    assert done.returncode == 3
    assert "The result is wrong" in done.stdout
    file.write_text("1 / 0\n")
    done = run("lab", str(file), "--threads", "1", "-q")
    assert done.returncode == 2
    assert "ZeroDivisionError" in done.stderr
