"""ONNX's own test cases for single operators, from the file to TVM's result."""

from __future__ import annotations

import warnings
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tvm
from onnx import numpy_helper

from tvmscope.compiler import frontends, pipeline, targets
from tvmscope.compiler.codegen import shares
from tvmscope.core.model import Prepared
from tvmscope.core.options import CompileOptions, LoadOptions
from tvmscope.core.target import Target
from tvmscope.errors import TvmscopeError
from tvmscope.models.prepare import prepare
from tvmscope.storage.files import write_npz

COMMON = (
    "Add", "ArgMax", "AveragePool", "BatchNormalization", "Clip", "Concat", "Conv",
    "ConvTranspose", "DepthToSpace", "Div", "Einsum", "Erf", "Exp", "Expand", "Flatten", "Gather",
    "Gelu", "Gemm", "GlobalAveragePool", "HardSwish", "LayerNormalization", "LeakyRelu", "MatMul",
    "Max", "MaxPool", "Mul", "Pad", "PRelu", "ReduceMean", "ReduceSum", "Relu", "Reshape",
    "Sigmoid", "Slice", "Softmax", "Split", "Sqrt", "Squeeze", "Sub", "Tanh", "Tile", "TopK",
    "Transpose", "Unsqueeze", "Where",
)  # fmt: skip
RARER = (
    "Abs", "And", "Ceil", "ConstantOfShape", "Cos", "CumSum", "Elu", "Equal", "Floor",
    "GatherElements", "GatherND", "GlobalMaxPool", "Greater", "GroupNormalization", "HardSigmoid",
    "InstanceNormalization", "Less", "Log", "LogSoftmax", "LRN", "Mean", "Min", "Mish",
    "Neg", "NonMaxSuppression", "Not", "Or", "Reciprocal", "ReduceL2", "ReduceMax", "ReduceMin",
    "ReduceProd", "Resize", "Round", "ScatterElements", "ScatterND", "Selu", "Sign", "Sin",
    "Softplus", "Sum", "Tan", "Xor",
)  # fmt: skip
UNSUPPORTED = {
    "test_reduce_max_empty_set_bool": "no reference: ONNX Runtime refuses it",
}
"""Cases of these operators that cannot work, and why; one that begins to work fails its test."""
ATTRIBUTES_OF_OLD = frozenset(
    {"AffineGrid", "CenterCropPad", "Clip", "CumSum", "Expand", "NonMaxSuppression", "OneHot"}
    | {"Pad", "Reshape", "Resize", "Slice", "Split", "Squeeze", "Tile", "TopK", "Trilu"}
    | {"Unsqueeze", "Upsample"}
)
"""Operators whose later inputs say what to do; models hold them as constants, as TVM wants them."""
DATA_INPUTS = {"NonMaxSuppression": 2}
"""Operators of these with more than one input that is data."""
FIRST_OUTPUT = frozenset({"Dropout", "LayerNormalization"})
"""The other outputs are for training."""


@pytest.fixture(scope="module")
def cases() -> dict[str, list[Any]]:
    """By operator: cases of one node on numbers that numpy has; none spelt out in other nodes."""
    from onnx.backend.test.case.node import collect_testcases

    found = defaultdict(list)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the cases compute logarithms of zero on purpose
        collected = collect_testcases(None)
    for case in collected:
        foreign = any(word in case.name for word in ("_expanded", "bfloat16", "string"))
        if len(case.model.graph.node) == 1 and not foreign:
            found[case.model.graph.node[0].op_type].append(case)
    return found


def frozen(case: Any) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """The case's model as an exporter would write it, and its inputs."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    model.ir_version = min(model.ir_version, 10)  # newer ones are for runtimes to come
    model.opset_import[0].version = min(model.opset_import[0].version, 23)
    names = [value.name for value in model.graph.input]
    inputs = dict(zip(names, map(_array, case.data_sets[0][0]), strict=True))
    operator = model.graph.node[0].op_type
    if operator in ATTRIBUTES_OF_OLD or operator.startswith("Reduce"):
        for value in list(model.graph.input)[DATA_INPUTS.get(operator, 1) :]:
            model.graph.input.remove(value)
            tensor = numpy_helper.from_array(inputs.pop(value.name), value.name)
            model.graph.initializer.append(tensor)
    if operator in FIRST_OUTPUT:
        del model.graph.output[1:]
        del model.graph.node[0].output[1:]
    return model, inputs


def _array(value: Any) -> np.ndarray:
    is_proto = isinstance(value, onnx.TensorProto)
    return numpy_helper.to_array(value) if is_proto else np.asarray(value)


def run(case: Any, folder: Path, host: Target) -> None:
    """Prepare, import, lower, compile and run a case, and compare with what it expects."""
    model, inputs = frozen(case)
    folder.mkdir(parents=True)
    onnx.save(model, folder / "model.onnx")
    write_npz(folder / "inputs.npz", inputs)
    options = LoadOptions(inputs_file=str(folder / "inputs.npz"))
    ready = Prepared(folder / "p", prepare(str(folder / "model.onnx"), str(folder / "p"), options))
    target = tvm.target.Target(targets.to_tvm(host))
    lowered = pipeline.run(frontends.import_model(ready).module, host, target, CompileOptions())
    made = shares.generate(lowered.module, target, "bytecode", folder, cores=1)
    machine = tvm.relax.VirtualMachine(made.executable, tvm.cpu())
    result = machine["main"](*(tvm.runtime.tensor(a) for a in inputs.values()))
    values = [result] if hasattr(result, "numpy") else list(result)
    expected = [_array(e) for e in case.data_sets[0][1]][: len(model.graph.output)]
    for actual, wanted in zip(values, expected, strict=True):
        array = actual.numpy()
        assert (array.shape, array.dtype) == (wanted.shape, wanted.dtype)
        np.testing.assert_allclose(array, wanted, rtol=1e-3, atol=1e-5)


def outcome(case: Any, folder: Path, host: Target) -> str:
    """ "" when the case works, else the first line of what happened."""
    try:
        run(case, folder / case.name, host)
    except (TvmscopeError, AssertionError) as e:
        return f"{type(e).__name__}: {' '.join(str(e).split())[:200]}"
    return ""


@pytest.mark.parametrize(
    "operator", [*COMMON, *(pytest.param(name, marks=pytest.mark.slow) for name in RARER)]
)
def test_operator(operator: str, cases: dict[str, list[Any]], host: Target, tmp_path: Path) -> None:
    assert cases[operator]
    found = {case.name: outcome(case, tmp_path, host) for case in cases[operator]}
    failed = {name: why for name, why in found.items() if why}
    assert failed.keys() == found.keys() & UNSUPPORTED.keys(), failed


@pytest.mark.slow
def test_every_other_operator_works_or_is_refused_by_name(
    cases: dict[str, list[Any]], host: Target, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A count of what works beyond the list above; the rest is printed with its reason."""
    works, refused = Counter[str](), defaultdict(list)
    for operator in sorted(cases.keys() - {*COMMON, *RARER}):
        for case in cases[operator]:
            try:
                why = outcome(case, tmp_path, host)
            except Exception as e:  # strings, sequences and shapes, which are no tensors
                why = f"{type(e).__name__}: {e}"
            if why:
                refused[operator].append(f"{case.name}: {why}")
            else:
                works[operator] += 1
    with capsys.disabled():
        print(f"\n{works.total()} cases of {len(works)} further operators work; unsupported:")
        for operator, lines in refused.items():
            print(f"  {operator} ({len(lines)} of {len(cases[operator])}): {lines[0]}")
    assert works.total() >= 200
