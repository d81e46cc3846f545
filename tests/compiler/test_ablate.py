"""`tvmscope ablate` on a real network, and what its switches do to the code."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import tvm

from support.command import TORCH_NET, refuses, run
from tvmscope.analysis.ablation import effects
from tvmscope.compiler import frontends, pipeline, targets
from tvmscope.compiler.passes import all_passes, required
from tvmscope.compiler.schedules import cpu, cuda
from tvmscope.core.model import Prepared
from tvmscope.core.options import CompileOptions
from tvmscope.core.session import load
from tvmscope.core.target import Target
from tvmscope.errors import UsageError
from tvmscope.workflow.ablating import switches


def test_every_switch_names_real_passes_and_every_rule_has_one() -> None:
    steps = {each.name for each in all_passes()} - required()
    for switch in (*switches.of_device("cpu"), *switches.of_device("cuda")):
        assert set(switch.passes) <= steps
    named = {rule for switch in switches.of_device("cpu") for rule in switch.rules}
    assert named == {rule.name for rule in cpu.RULES}
    named = {rule for switch in switches.of_device("cuda") for rule in switch.rules}
    # generated kernels have a switch of their own, with the pass that places them; nothing would
    # run without the others
    kept = {"dlight-fallback", "tir-steps", "triton"}
    assert named == {rule.name for rule in cuda.RULES} - kept


def lower(ready: Prepared, host: Target, options: CompileOptions) -> set[str | None]:
    imported = frontends.import_model(ready)
    tvm_target = tvm.target.Target(targets.to_tvm(host), host=targets.to_tvm(host))
    return {ir.rule for ir in pipeline.run(imported.module, host, tvm_target, options).kernels}


def test_the_next_rule_takes_what_a_disabled_one_leaves(conv_net: Prepared, host: Target) -> None:
    usual = lower(conv_net, host, CompileOptions())
    assert "conv2d" in usual
    left = CompileOptions(overrides={"disabled_rules": ("conv2d",)})
    assert lower(conv_net, host, left) == usual - {"conv2d"} | {"fallback"}
    every = CompileOptions(overrides={"disabled_rules": tuple(r.name for r in cpu.RULES)})
    assert lower(conv_net, host, every) == {None}


def test_an_unknown_rule_is_refused(conv_net: Prepared, host: Target) -> None:
    wrong = replace(CompileOptions(), overrides={"disabled_rules": ("magic",)})
    with pytest.raises(UsageError, match="no schedule rule named magic; rules: conv2d"):
        lower(conv_net, host, wrong)


@pytest.mark.slow  # long
def test_ablate_measures_a_network_with_and_without(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(TORCH_NET)
    done = run(
        "ablate", "net.py", "--only", "fusion,threads,attention", "--alone", "--target", "cpu",
        "--duration", "0.3s", "-o", "out", "--json", cwd=tmp_path, timeout_s=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    session = load(tmp_path / "out")
    rows = {r.task.variant.change: r for r in session.results}
    assert rows["without attention"].reason is not None
    assert "the code is the same" in rows["without attention"].reason
    for change in (None, "without fusion", "with nothing", "only fusion"):
        assert rows[change].status == "ok", rows[change].reason
        assert rows[change].accuracy is not None
    if session.environment.threads > 1:
        assert rows["without threads"].task.threads == 1
    found = {(e["name"], e["direction"]): e for e in json.loads(done.stdout)["effects"]}
    assert found["fusion", "without"]["factor"] > 0
    assert found["everything", "without"]["ci95"] is not None
    assert {(e.name, e.direction) for e in effects(session)} == set(found)
    assert "Each optimisation left out" in done.stderr
    assert "fusion" in (tmp_path / "out" / "report.md").read_text()


def test_ablate_refuses_what_it_cannot_switch(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(TORCH_NET)
    common = ("ablate", "net.py", "--target", "cpu")
    refuses(run(*common, "--only", "magic", cwd=tmp_path), 2, "no optimisation named magic")
    refuses(run(*common, "--pipeline", "tvm", cwd=tmp_path), 2, "omit --pipeline")
    refuses(run(*common, "--only", "tuning", "--db", "none", cwd=tmp_path), 2, "no kernel is tuned")


OPTIMISATIONS = {each.name: each for each in switches.of_device("cpu")}


@pytest.mark.parametrize("name", [n for n, each in OPTIMISATIONS.items() if each.passes])
def test_the_model_can_be_lowered_without_each_pass(
    name: str, conv_net: Prepared, host: Target
) -> None:
    assert lower(conv_net, host, switches.off([OPTIMISATIONS[name]], CompileOptions()))
