"""`bisect` on real errors: TVM's own importer, and passes and schedules that are planted wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from support.command import TORCH_NET, refuses, run, save_onnx
from tvmscope.benchmark.verify import mismatch
from tvmscope.compiler.bisect import prefixes, reproduce
from tvmscope.core.diagnosis.bisection import Bisection
from tvmscope.core.model import Prepared
from tvmscope.core.options import CompileOptions
from tvmscope.core.target import Target
from tvmscope.stages.options import Options
from tvmscope.workflow.analyze import analyze
from tvmscope.workflow.bisecting.bisect import bisect

FINISH = """
        rx.LegalizeOps(), *kernels, rx.RewriteDataflowReshape(), rx.ToNonDataflow(),
        rx.RemovePurityChecking(), rx.CallTIRRewrite(), rx.LowerAllocTensor(),
        rx.KillAfterLastUse(), rx.LowerRuntimeBuiltin(), rx.ComputePrimValue(), rx.VMShapeLower(),
        rx.AttachGlobalSymbol(),
"""
BROKEN_PASS = f"""
from tvm import relax
from tvm.relax import transform as rx
from tvmscope.compiler.graph.rewrite import rewrite_calls

def forget_relu(rewriter, call):
    return relax.op.abs(call.args[0])

def make(target):
    kernels = []
    return [
        rx.CanonicalizeBindings(), rewrite_calls("ForgetRelu", {{"relax.nn.relu": forget_relu}}),
        {FINISH}
    ]
"""
BROKEN_RULE = f"""
from tvm import s_tir, te, topi
from tvm.relax import transform as rx
from tvmscope.compiler import targets
from tvmscope.compiler.manifest.rule import ScheduleRule
from tvmscope.compiler.schedules.apply import apply_schedules

def clumsy(func, target):
    if "T.max" not in func.script():
        return None
    x = te.placeholder([int(d) for d in func.params[0].shape], "float32")
    return s_tir.Schedule(te.create_prim_func([x, topi.minimum(x, te.const(0.0))]))

def make(target):
    rule = ScheduleRule(
        name="clumsy", devices=("cpu",), version=1, words="A test.", schedule=clumsy
    )
    kernels = [apply_schedules([rule], targets.host_target(cores=2), [])]
    return [{FINISH}]
"""


def options(folder: Path, **more) -> Options:
    return Options.of(target="cpu", output=folder, **more)


def reproduces(found: Bisection) -> str:
    """Run the reproducer once more, as a user would; its output."""
    assert found.reproducer is not None
    assert found.reproduced is True
    done = subprocess.run(
        [sys.executable, found.reproducer / "reproduce.py"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert "DIFFERENT" in done.stdout
    return done.stdout


def three_nodes(tmp_path: Path, middle: str, shape: tuple[int, ...], **attributes) -> Path:
    """Convolution, an operator, and ReLU."""
    weight = np.random.default_rng(0).standard_normal((4, 3, 3, 3)).astype(np.float32)
    constants = {"w": weight}
    if middle == "RoiAlign":
        constants["rois"] = np.array([[0, 0, 5, 5], [1, 2, 7, 6]], np.float32)
        constants["images"] = np.zeros(2, np.int64)
    more = [name for name in constants if name != "w"]
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="conv", pads=[1, 1, 1, 1]),
        helper.make_node(middle, ["c", *more], ["m"], name="middle", **attributes),
        helper.make_node("Relu", ["m"], ["y"], name="relu"),
    ]
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 3, 7, 9))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )  # fmt: skip
    file = tmp_path / "net.onnx"
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    file.write_bytes(model.SerializeToString())
    return file


def test_an_importers_error_is_told_with_its_node_alone(tmp_path: Path) -> None:
    file = three_nodes(
        tmp_path, "RoiAlign", (2, 4, 3, 3), mode="max", output_height=3, output_width=3
    )
    found = bisect(str(file), options(tmp_path / "out"))
    assert found.outcome == "importer"
    assert found.source_ops == ("middle/RoiAlign",)
    assert "max|a-b|" in (found.detail or "")
    assert found.alone
    import onnx

    (node,) = onnx.load(tmp_path / "out" / "model.onnx").graph.node
    assert node.op_type == "RoiAlign"
    assert "middle/RoiAlign" in reproduces(found)


def test_a_broken_pass_is_named_with_the_first_operator(tmp_path: Path) -> None:
    file = three_nodes(tmp_path, "Tanh", (1, 4, 7, 9))
    (tmp_path / "mine.py").write_text(BROKEN_PASS)
    pipeline = f"{tmp_path / 'mine.py'}:make"
    found = bisect(str(file), options(tmp_path / "out", pipeline=pipeline))
    assert found.outcome == "pass"
    assert found.passes == ("01-ForgetRelu",)
    assert found.source_ops == ("relu/Relu",)
    assert found.alone
    reproduces(found)
    assert "R.abs" in (tmp_path / "out" / "after.txt").read_text()
    assert "conv2d" not in (tmp_path / "out" / "before.txt").read_text()
    with np.load(tmp_path / "out" / "inputs.npz") as given:
        assert [given[name].shape for name in given.files] == [(1, 4, 7, 9)]


def test_a_broken_schedule_names_kernel_and_rule(tmp_path: Path) -> None:
    file = three_nodes(tmp_path, "Tanh", (1, 4, 7, 9))
    (tmp_path / "mine.py").write_text(BROKEN_RULE)
    pipeline = f"{tmp_path / 'mine.py'}:make"
    found = bisect(str(file), options(tmp_path / "out", pipeline=pipeline))
    assert found.outcome == "schedule"
    assert found.rule == "clumsy"
    assert found.kernel is not None
    assert "relu" in found.kernel
    assert found.source_ops == ("relu/Relu",)
    assert found.passes == ("01-ApplySchedules",)
    reproduces(found)


@pytest.mark.slow  # long
def test_a_pass_that_makes_nan_is_found(tmp_path: Path) -> None:
    file = three_nodes(tmp_path, "Tanh", (1, 4, 7, 9))
    broken = BROKEN_PASS.replace("relax.op.abs(", "relax.op.log(")
    (tmp_path / "mine.py").write_text(broken)
    pipeline = f"{tmp_path / 'mine.py'}:make"
    found = bisect(str(file), options(tmp_path / "out", pipeline=pipeline))
    assert found.passes == ("01-ForgetRelu",)
    assert "NaN or infinite in this output only" in (found.detail or "")
    reproduces(found)


def test_a_reference_of_nan_is_told_with_its_first_operator(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Neg", ["x"], ["n"], name="neg"),
        helper.make_node("Log", ["n"], ["l"], name="log"),
        helper.make_node("Abs", ["l"], ["y"], name="abs"),
    ]
    np.savez(tmp_path / "x.npz", x=np.full((1, 8), 2, np.float32))
    file = save_onnx(tmp_path / "net.onnx", *nodes)
    found = bisect(str(file), options(tmp_path / "out", inputs_file=tmp_path / "x.npz"))
    assert found.outcome == "reference"
    assert found.source_ops == ("log/Log",)
    assert found.reproducer is None


def test_nothing_diverges_is_said_with_exit_code_0(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(TORCH_NET)
    done = run("bisect", "net.py", "--target", "cpu", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "nothing diverges" in done.stderr
    assert json.loads(done.stdout)["outcome"] == "nothing"
    assert not list((tmp_path).glob("results/*"))


@pytest.mark.slow  # long
def test_a_torch_model_under_a_broken_pass(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(TORCH_NET)
    (tmp_path / "mine.py").write_text(BROKEN_PASS)
    done = run(
        "bisect", "net.py", "--target", "cpu", "--pipeline", "mine.py:make", "-o", "out", "-v",
        cwd=tmp_path, timeout_s=300,
    )  # fmt: skip
    assert done.returncode == 3, done.stderr
    assert "pass 01-ForgetRelu makes it wrong" in done.stderr
    assert "as imported: right" in done.stderr
    assert "reproduce.py reproduces it with that operator alone" in done.stderr


@pytest.mark.parametrize("flags", [("--target", "cuda:sm_90"), ("--target", "cpu,cpu:x86-64")])
def test_what_it_cannot_bisect_is_refused(flags: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(TORCH_NET)
    refuses(run("bisect", "net.py", *flags, cwd=tmp_path), 2, "bisect")


@pytest.mark.slow  # long
def test_analyze_says_which_operator_diverges_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "tvmscope.workflow.bisecting.bisect.CHEAP_BUILD_S", 1e6
    )  # whatever the load here
    file = three_nodes(
        tmp_path, "RoiAlign", (2, 4, 3, 3), mode="max", output_height=3, output_width=3
    )
    asked = {"backends": "tvmscope,tvm", "profile": False, "iterations": 1, "warmup": 0}
    session = analyze(str(file), options(tmp_path / "out", **asked))
    first, second = session.warnings
    assert "tvmscope @ cpu" in first
    assert "middle/RoiAlign is wrong as soon as it is imported" in first
    assert (tmp_path / "out" / "bisect" / "reproduce.py").is_file()
    assert "tvm @ cpu" in second
    assert f"tvmscope bisect {file} --target cpu --pipeline tvm" in second


@pytest.mark.parametrize("operator", ["convolution", "addmm"])
def test_one_operator_of_a_torch_model_runs_alone(
    operator: str, conv_net: Prepared, host: Target, tmp_path: Path
) -> None:
    prefixes.start(conv_net, host, CompileOptions(), 2)
    nodes = prefixes.study().imported.nodes
    source = next(i for i, name in enumerate(nodes) if operator in name)
    reproduce.write_operator(source, str(tmp_path), 1e-4, operator)
    done = subprocess.run(
        [sys.executable, tmp_path / "reproduce.py"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "the same" in done.stdout


def test_the_imported_model_has_the_frameworks_values(
    conv_net: Prepared, host: Target, tmp_path: Path
) -> None:
    prefixes.start(conv_net, host, CompileOptions(), 2)
    reproduce.framework(str(tmp_path / "theirs.npz"))
    ours = {v.sources: v for v in prefixes.values(0, str(tmp_path / "ours.npz"))}
    compared = 0
    with np.load(tmp_path / "theirs.npz") as expected, np.load(tmp_path / "ours.npz") as actual:
        for source in range(len(prefixes.study().imported.nodes)):
            if (source,) in ours and f"{source}.0" in expected.files:
                value = actual[str(ours[source,].index)]
                assert mismatch(value, expected[f"{source}.0"], 1e-4) is None
                compared += 1
    assert compared >= 8
