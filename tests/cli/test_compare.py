"""`tvmscope compare`, run as users run it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from support import samples
from support.command import refuses, run
from tvmscope.core.session import save


@pytest.fixture
def pair(tmp_path: Path) -> tuple[str, str]:
    peer = samples.result("onnxruntime", 0.05)
    save(samples.session(samples.result("tvmscope", 0.04), peer), tmp_path / "old")
    save(samples.session(samples.result("tvmscope", 0.05), peer), tmp_path / "new")
    return str(tmp_path / "old"), str(tmp_path / "new")


def test_what_became_slower_is_said(pair: tuple[str, str]) -> None:
    done = run("compare", *pair)
    assert done.returncode == 0
    assert "slower" in done.stderr


def test_a_regression_exits_with_4(pair: tuple[str, str]) -> None:
    done = run("compare", *pair, "--fail-if-slower", "5%")
    assert done.returncode == 4
    assert "tvmscope @ cpu:znver4 by 25" in done.stderr
    assert run("compare", *pair, "--fail-if-slower", "40%").returncode == 0
    assert run("compare", *reversed(pair), "--fail-if-slower", "5%").returncode == 0


def test_the_baseline_may_be_a_flag(pair: tuple[str, str]) -> None:
    done = run("compare", pair[1], "--baseline", pair[0], "--json")
    row = json.loads(done.stdout)["rows"][0]
    assert row["verdict"] == "slower"
    assert row["through"] == "onnxruntime"


def test_another_cpu_is_refused_with_the_reason(pair: tuple[str, str], tmp_path: Path) -> None:
    there = samples.session(samples.result("tvmscope", 0.04))
    save(replace(there, environment=replace(there.environment, cpu="Z80")), tmp_path / "there")
    refuses(run("compare", pair[0], str(tmp_path / "there"), "-q"), 1, "CPU", "Z80")


def test_one_path_is_not_enough(pair: tuple[str, str]) -> None:
    refuses(run("compare", pair[0]), 2, "two paths")
