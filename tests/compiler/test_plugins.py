"""Another package's rules and passes compile models, and its backend runs them beside ours."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tvm import relax

from support import outside
from support.command import refuses, run
from support.small_graphs import lowered, results
from tvmscope import plugins
from tvmscope.compiler import build, pipeline, targets
from tvmscope.compiler.tunable import extract
from tvmscope.core.model import Prepared
from tvmscope.core.options import CompileOptions
from tvmscope.core.session import load
from tvmscope.core.target import Target
from tvmscope.runtime import artifact

X = np.linspace(-1, 1, 7 * 32, dtype=np.float32).reshape(7, 32)
SM_90 = targets.resolve("cuda:sm_90")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return outside.write(tmp_path_factory.mktemp("site") / "packages")


@pytest.fixture
def _elsewhere(site: Path) -> Iterator[None]:
    with outside.installed(site):
        yield


def activation(x: relax.Expr) -> relax.Expr:
    return relax.op.nn.relu(x)


def rules(done: pipeline.Lowered) -> set[str | None]:
    return {kernel.rule for kernel in done.kernels}


@pytest.mark.usefixtures("_elsewhere")
def test_a_cpu_rule_from_elsewhere_takes_a_kernel(host: Target) -> None:
    assert rules(lowered(host, activation, X)) == {"elsewhere-cpu"}
    np.testing.assert_array_equal(results(host, activation, X)[0], np.maximum(X, 0))
    left_out = {"disabled_rules": ("elsewhere-cpu",)}
    assert rules(lowered(host, activation, X, overrides=left_out)) == {"fallback"}
    plugins.allow(False)
    assert rules(lowered(host, activation, X)) == {"fallback"}


@pytest.mark.usefixtures("_elsewhere")
def test_a_cuda_rule_from_elsewhere_takes_a_kernel_without_a_gpu() -> None:
    done = lowered(SM_90, activation, X)
    assert rules(done) == {"elsewhere-cuda"}
    (kernel,) = done.kernels
    assert any("threadIdx.x" in line for line in kernel.trace)
    plugins.allow(False)
    assert rules(lowered(SM_90, activation, X)) == {"tir-elementwise"}


@pytest.mark.usefixtures("_elsewhere")
def test_what_a_cuda_rule_can_tune_is_searched(conv_net: Prepared, tmp_path: Path) -> None:
    left = CompileOptions(disabled_passes=("place-units",))  # generated kernels leave nothing to it
    tasks = extract.extract(conv_net, SM_90, left, tmp_path)
    found = [task for task in tasks if task.lowerings[0].rule == "elsewhere-cuda"]
    assert found
    params = [candidate.params for candidate in found[0].candidates]
    assert params == [{}, {"threads": 128}]
    assert found[0].lowerings[0].own == {"threads": 64}


@pytest.mark.usefixtures("_elsewhere")
def test_a_pass_from_elsewhere_runs_at_its_anchor(host: Target) -> None:
    done = lowered(host, activation, X)
    ran = list(done.times_s)
    assert ran[ran.index("dead-code") + 1] == "elsewhere-pass"
    assert str(done.module.attrs["elsewhere"]) == "cpu"
    without = lowered(host, activation, X, disabled_passes=("elsewhere-pass",))
    assert "elsewhere-pass" not in without.times_s
    theirs = lowered(host, activation, X, pipeline="tvm")
    assert "elsewhere-pass" not in theirs.times_s, "TVM's own pipeline stays TVM's own"


@pytest.mark.usefixtures("_elsewhere")
def test_an_artifact_names_what_it_was_made_with(
    conv_net: Prepared, host: Target, tmp_path: Path
) -> None:
    build.build(conv_net, tmp_path / "a", host, host, CompileOptions())
    found = artifact.read(tmp_path / "a").plugins
    assert {(p.kind, p.name) for p in found} == {
        ("pass", "elsewhere-pass"),
        ("schedule rule", "elsewhere-cpu"),
    }
    assert {p.origin for p in found} == {outside.ORIGIN}
    plugins.allow(False)
    build.build(conv_net, tmp_path / "b", host, host, CompileOptions())
    assert artifact.read(tmp_path / "b").plugins == ()


def test_the_command_line_uses_it_all_and_leaves_it_out(
    site: Path, net: Path, tmp_path: Path
) -> None:
    path = {"PYTHONPATH": os.pathsep.join((str(site), os.environ.get("PYTHONPATH", "")))}
    asked = ("bench", str(net), "--target", "cpu", "--duration", "0.2s", "--backends")
    done = run(*asked, "tvmscope,elsewhere", "-o", "out", cwd=tmp_path, timeout_s=600, **path)
    assert done.returncode == 0, done.stderr
    rows = {row.task.variant.label: row for row in load(tmp_path / "out").results}
    assert rows["elsewhere"].status == "ok"
    assert rows["elsewhere"].settings == {"library": "elsewhere"}
    assert (
        f"pass elsewhere-pass of {outside.ORIGIN}" in (rows["tvmscope"].settings or {})["plugins"]
    )
    shown = run("report", "out", "--format", "elsewhere-text", cwd=tmp_path, **path)
    assert shown.stdout.startswith("elsewhere: ")
    listed = json.loads(run("models", "--json", **path).stdout)
    assert "elsewhere-net" in [model["name"] for model in listed]
    refused = run("--no-plugins", *asked, "elsewhere", "-o", "no", cwd=tmp_path, **path)
    refuses(refused, 2, "elsewhere")
