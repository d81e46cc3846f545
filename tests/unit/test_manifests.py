"""Manifests of passes and schedule rules: what they must say, and what follows from them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import tvmscope
from support import samples
from support.diagnosis_samples import SITUATIONS
from tvmscope.compiler.manifest.names import unique
from tvmscope.compiler.manifest.pass_ import PHASES, Pass, Shows
from tvmscope.compiler.manifest.rule import ScheduleRule
from tvmscope.compiler.manifest.switch import Switch
from tvmscope.compiler.passes import all_passes
from tvmscope.compiler.schedules import all_rules, cpu, rules
from tvmscope.core.options import CompileOptions
from tvmscope.diagnose import engine
from tvmscope.stages.facts import informed
from tvmscope.workflow.ablating import switches

NOT_OPTIMISATIONS = {
    "decompose", "canonicalize", "scalar-operands", "mixed-precision", "wide-sums", "dead-code",
    "dispatch-sampling", "dispatch-sort-scan", "annotate-patterns", "join-batch", "cpu-rules",
    "gpu-rules", "plan-memory", "cuda-graph", "kill-after-use", "norm-rows",
}  # fmt: skip
"""Passes of ours that prepare others, keep results right, or are TVM's default in every pipeline.
Schedule rules have switches of their own."""


def a_rule(**more) -> ScheduleRule:
    given = {"name": "mine", "devices": ("cpu",), "version": 1, "words": "Does something."}
    return ScheduleRule(**{"schedule": lambda func, target: None, **given, **more})


def a_pass(**more) -> Pass:
    given = {"name": "mine", "phase": "tidy", "words": "Does something."}
    return Pass(**{"make": lambda context: None, **given, **more})


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"name": "No Name"}, "small letters"),
        ({"words": " "}, "no words"),
        ({"devices": ("tpu",)}, "devices are of cpu, cuda"),
        ({"devices": ()}, "devices are of"),
        ({"version": 0}, "versions begin with 1"),
        ({"space": lambda func, target: None}, "no words for its parameters"),
        ({"before": "conv2d", "after": "conv2d"}, "one anchor"),
    ],
)
def test_a_rule_that_says_too_little_is_refused(wrong: dict, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        a_rule(**wrong)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"name": ""}, "small letters"),
        ({"words": ""}, "no words"),
        ({"phase": "later"}, "no phase 'later'"),
        ({"ours": ("tpu",)}, "devices are of"),
        ({"required": True, "switches": (Switch(name="mine"),)}, "cannot be switched off"),
        ({"before": "legalize", "after": "legalize"}, "one anchor"),
        ({"shows": Shows(kernels="(")}, "unterminated"),
    ],
)
def test_a_pass_that_says_too_little_is_refused(wrong: dict, said: str) -> None:
    with pytest.raises(Exception, match=said):
        a_pass(**wrong)


def test_a_name_is_given_once() -> None:
    with pytest.raises(ValueError, match=r"here: the name 'mine' is given twice"):
        unique((a_rule(), a_rule()), "here")
    names = [rule.name for rule in (*cpu.RULES, *rules("cuda"))]
    assert len(set(names)) == len(names)


def test_passes_of_a_phase_stand_together_and_phases_in_their_order() -> None:
    found = [PHASES.index(each.phase) for each in all_passes()]
    assert found == sorted(found)


def test_every_optimisation_of_ours_can_be_switched() -> None:
    ours = [each for each in all_passes() if each.ours and not each.required]
    assert {each.name for each in ours if not each.switches} == NOT_OPTIMISATIONS
    for device in ("cpu", "cuda"):
        known = switches.of_device(device)
        left_out = {name for each in known for name in each.passes}
        assert left_out >= {p.name for p in ours if device in p.ours and p.switches}
        assert {name for each in known for name in each.needs} <= {each.name for each in known}
    for name in ("fast-scatter", "fast-select", "write-in-place", "fold-pads"):
        assert name in [each.name for each in switches.of_device("cpu")]


def test_passes_that_name_the_same_optimisation_are_left_out_together() -> None:
    known = {each.name: each for each in switches.of_device("cpu")}
    assert known["fusion"].passes == ("fuse-ops", "fuse-tir")
    assert known["winograd"].passes == ()
    assert known["winograd"].overrides == {"winograd": False}
    assert known["layout"].passes == ("block-layout",)
    assert not any(each.alone for each in switches.of_device("cuda"))


def test_rules_that_share_a_switch_are_left_out_together_and_alone() -> None:
    known = {each.name: each for each in switches.of_device("cuda")}
    together = known["tir-schedules"]
    assert together.rules == ("tir-gemm", "tir-elementwise", "tir-windows", "tir-rows")
    assert {rule for name in together.rules for rule in known[f"{name}-schedule"].rules} == set(
        together.rules
    )
    left = switches.off([together], CompileOptions())
    assert left.overrides == {"disabled_rules": together.rules}
    assert left.disabled_passes == ()


def test_another_packages_rule_can_share_a_switch() -> None:
    shared = Switch(name="mine-schedules")
    one, other = (
        a_rule(name=name, switch=Switch(name=f"{name}-schedule"), shared_switch=shared)
        for name in ("one", "other")
    )
    known = {each.name: each.rules for each in switches.derived((), (one, other), "cpu")}
    assert known["mine-schedules"] == ("one", "other")
    assert known["one-schedule"] == ("one",)


def test_what_a_pass_leaves_behind_is_looked_at_by_a_rule_that_exists() -> None:
    known, _ = engine.rules()
    assert {each.finding for each in all_passes()} <= set(known)


def test_a_session_says_what_there_is_to_know_of_what_it_names() -> None:
    hit = SITUATIONS["pass-disabled"][0]
    (facts,) = hit.passes
    assert (facts.name, facts.only_unscheduled) == ("pack-matmul", True)
    assert informed(hit).passes == hit.passes
    (found,) = [f for f in engine.diagnose(hit).findings if f.rule == "pass-disabled"]
    assert found.evidence.startswith(facts.words)
    words = {rule.name for rule in samples.tuned().rules}
    assert words == {rule.name for rule in all_rules() if rule.space}


def test_a_disabled_pass_that_nothing_is_known_of_is_found_too() -> None:
    from dataclasses import replace

    bare = replace(SITUATIONS["pass-disabled"][0], passes=())
    (found,) = [f for f in engine.diagnose(bare).findings if f.rule == "pass-disabled"]
    assert found.saving_s is None


def test_manifests_are_read_without_tvm() -> None:
    script = (
        "import sys\nfrom tvmscope.stages import facts\n"
        "from tvmscope.workflow.ablating import switches\n"
        "switches.of_device('cpu'), switches.of_device('cuda')\n"
        "import tvmscope.tuning.records.matching\n"
        "print({'tvm', 'torch', 'numpy'} & set(sys.modules))"
    )
    source = str(Path(tvmscope.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True,
        env={"PYTHONPATH": source},
    )  # fmt: skip
    assert "tvm" not in done.stdout
    assert "torch" not in done.stdout
