"""The pass list: our `tvm` variant is the wheel's pipeline, and every pass can be named."""

from __future__ import annotations

from pathlib import Path

import pytest
import tvm
from tvm import relax

from tvmscope.compiler import frontends, pipeline, targets
from tvmscope.compiler.describe import pass_dump
from tvmscope.core.model import Prepared
from tvmscope.core.options import CompileOptions
from tvmscope.core.target import Target
from tvmscope.errors import PassError, UsageError


def test_tvm_variant_is_what_tvm_compile_runs_on_a_cpu(conv_net: Prepared, host: Target) -> None:
    module = frontends.import_model(conv_net).module
    tvm_target = tvm.target.Target(targets.to_tvm(host))
    ours = pipeline.run(module, host, tvm_target, CompileOptions(pipeline="tvm")).module
    with tvm_target:
        theirs = relax.get_pipeline("default")(module)
    tvm.ir.assert_structural_equal(ours, theirs)


def test_tvm_variant_is_what_tvm_compile_runs_on_cuda(conv_net: Prepared) -> None:
    cuda = targets.resolve("cuda:sm_90")
    module = frontends.import_model(conv_net).module
    tvm_target = tvm.target.Target(targets.to_tvm(cuda), host={"kind": "llvm"})
    ours = pipeline.run(module, cuda, tvm_target, CompileOptions(pipeline="tvm")).module
    with tvm_target:
        theirs = relax.get_default_pipeline(tvm_target)(module)
    tvm.ir.assert_structural_equal(ours, theirs)


def test_the_tuned_variant_is_tvms_tuning_pipeline_before_the_default_one(
    conv_net: Prepared, host: Target
) -> None:
    module = frontends.import_model(conv_net).module
    tvm_target = tvm.target.Target(targets.to_tvm(host))
    ours = pipeline.run(module, host, tvm_target, CompileOptions(pipeline="tvm-tuned")).module
    steps = relax.transform
    with tvm_target:
        theirs = tvm.transform.Sequential([
            steps.DecomposeOpsForInference(), steps.CanonicalizeBindings(),
            relax.get_pipeline("zero"), relax.get_pipeline("default"),
        ])(module)  # fmt: skip
    tvm.ir.assert_structural_equal(ours, theirs)


def test_ours_fuses_batch_norm_away(conv_net: Prepared, host: Target) -> None:
    module = frontends.import_model(conv_net).module
    lowered = pipeline.run(module, host, tvm.target.Target(targets.to_tvm(host)), CompileOptions())
    assert not any("batch_norm" in call.kernel for call in lowered.calls)
    assert len(lowered.calls) < 8
    assert lowered.remarks == ()


def test_a_pass_can_be_switched_off(host: Target) -> None:
    names = [s.name for s in pipeline.select(CompileOptions(disabled_passes=("fuse-ops",)), host)]
    assert "fuse-ops" not in names
    assert "fuse-tir" in names


@pytest.mark.parametrize("name", ["no-such-pass", "legalize"])
def test_unknown_or_needed_pass_cannot_be_switched_off(name: str, host: Target) -> None:
    with pytest.raises(UsageError, match=name):
        pipeline.select(CompileOptions(disabled_passes=(name,)), host)


def test_a_failing_pass_is_named_with_those_before_it(
    conv_net: Prepared, host: Target, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(
        "import tvm\n"
        "from tvm.relax import transform as rx\n"
        "@tvm.transform.module_pass(opt_level=0, name='Broken')\n"
        "def broken(mod, ctx):\n"
        "    raise ValueError('boom')\n"
        "def passes(target):\n"
        "    return [rx.LegalizeOps(), broken]\n"
    )
    module = frontends.import_model(conv_net).module
    options = CompileOptions(pipeline=f"{tmp_path}/mine.py:passes")
    with pytest.raises(PassError, match=r"Broken.*boom.*LegalizeOps"):
        pipeline.run(module, host, tvm.target.Target(targets.to_tvm(host)), options)


def test_a_user_pipeline_replaces_ours(conv_net: Prepared, host: Target, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from tvm import relax\ndef whole(target):\n    return relax.get_pipeline('default')\n"
    )
    module = frontends.import_model(conv_net).module
    options = CompileOptions(pipeline=f"{tmp_path}/mine.py:whole")
    lowered = pipeline.run(module, host, tvm.target.Target(targets.to_tvm(host)), options)
    assert len(lowered.times_s) == 1


@pytest.mark.parametrize("text", ["nope", "nope.py:f", "nope:f"])
def test_unreadable_user_pipeline_is_a_usage_error(
    text: str, conv_net: Prepared, host: Target
) -> None:
    module = frontends.import_model(conv_net).module
    with pytest.raises(UsageError):
        pipeline.run(
            module, host, tvm.target.Target(targets.to_tvm(host)), CompileOptions(pipeline=text)
        )


def test_ir_is_dumped_per_phase(conv_net: Prepared, host: Target, tmp_path: Path) -> None:
    module = frontends.import_model(conv_net).module
    options = CompileOptions(dump_ir=str(tmp_path / "ir"))
    pipeline.run(module, host, tvm.target.Target(targets.to_tvm(host)), options)
    phases = [file.stem.split("-", 1)[1] for file in sorted((tmp_path / "ir").iterdir())]
    expected = "graph precision tidy layout dispatch legalize fuse schedule lower memory finish"
    assert phases == expected.split()


def test_each_pass_says_what_it_does_and_what_it_changed(
    conv_net: Prepared, host: Target, tmp_path: Path
) -> None:
    module = frontends.import_model(conv_net).module
    options = CompileOptions(dump_ir=str(tmp_path), dump_each_pass=True)
    lowered = pipeline.run(module, host, tvm.target.Target(targets.to_tvm(host)), options)
    index = (tmp_path / "passes.md").read_text()
    sections = [line for line in index.splitlines() if line.startswith("## ")]
    assert [s.split()[1].split("-", 1)[1] for s in sections] == list(lowered.times_s)
    for each in pipeline.select(options, host):
        assert each.words in index
    (fused,) = (file for file in tmp_path.glob("*-fuse-tir.diff"))
    text = fused.read_text()
    assert "-        lv" in text or "-    def" in text
    assert fused.with_suffix(".py").is_file()
    unchanged = next(s for s in index.split("## ") if "It changed nothing." in s).split()[0]
    assert not (tmp_path / f"{unchanged}.diff").exists()
    assert "```diff" in index
    assert (tmp_path / "00-imported.py").is_file()


def test_a_difference_names_functions_that_come_go_and_change() -> None:
    def module(**numbers: int) -> tvm.IRModule:
        return tvm.IRModule({name: _adding(number) for name, number in numbers.items()})

    found = pass_dump.difference(module(a=1, b=2, c=3), module(b=2, c=4, d=5))
    assert (found.added, found.removed, found.changed) == (("d",), ("a",), ("c",))
    assert any(line.startswith("-") and "3" in line for line in found.lines)
    assert any(line.startswith("+") and "4" in line for line in found.lines)
    assert not pass_dump.difference(module(a=1), module(a=1))


def _adding(number: int) -> relax.Function:
    x = relax.Var("x", relax.TensorType((4,), "float32"))
    return relax.Function([x], relax.op.add(x, relax.const(number, "float32")), x.ty)
