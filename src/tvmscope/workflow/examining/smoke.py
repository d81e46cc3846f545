"""Tests the whole chain without a model file: compiles, runs and checks two tiny graphs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt

from tvmscope.errors import TvmscopeError, one_line
from tvmscope.machine import cuda_device
from tvmscope.messages import Message, Seconds, Text, msg
from tvmscope.progress import Progress
from tvmscope.stages.artifact import entry_for
from tvmscope.stages.measure_rows import own_outputs
from tvmscope.stages.options import Options
from tvmscope.workflow.compile import compile_model
from tvmscope.workflow.examining.doctor import Check

Array = npt.NDArray[Any]
TOLERANCE = 1e-4
_SHAPE, _FILTERS = (1, 3, 9, 11), 5
"""Odd sizes, so that the tails of vectors and tiles also run."""


@dataclass(frozen=True)
class Case:
    """A graph of one node, and its result in numpy."""

    name: Message
    node: str
    inputs: dict[str, Array]
    """Constants besides `x`."""
    expected: Callable[[Array], Array]
    attributes: dict[str, Any]


def smoke(progress: Progress) -> list[Check]:
    """Return a line per graph and target: CPU always, CUDA if there is a device."""
    targets = ["cpu", *(["cuda"] if cuda_device.find() else [])]
    checks = []
    for target in targets:
        for case in _cases():
            progress.stage(msg("smoke test"), _named(case, target))
            try:
                checks.append(_check(case, target))
            except TvmscopeError as e:  # the other targets must still be checked
                checks.append(Check(_named(case, target), "fail", one_line(e)))
    return checks


def _check(case: Case, target: str) -> Check:
    with TemporaryDirectory(prefix="tvmscope-") as scratch:
        folder = Path(scratch)
        x = np.random.default_rng(0).standard_normal(_SHAPE).astype(np.float32)
        np.savez(folder / "inputs.npz", x=x)
        _write(case, folder / "model.onnx")
        options = Options.of(target=target, inputs_file=folder / "inputs.npz", graph=False)
        artifact = compile_model(str(folder / "model.onnx"), folder / "artifact", options)
        entry = entry_for(artifact, scratch, options)
        computed = own_outputs(entry, options, case.name, folder / "outputs.npz")
        with np.load(computed.outputs) as data:
            (found,) = data.values()
    wanted = case.expected(x)
    error = float(np.abs(found - wanted).max() / np.abs(wanted).max())
    detail = msg(
        "{target}: compiled in {time}, run, error {error:.0e}",
        target=artifact.target.label, time=Seconds(artifact.build_s), error=error,
    )  # fmt: skip
    passed = found.shape == wanted.shape and error <= TOLERANCE
    return Check(_named(case, target), "ok" if passed else "fail", detail)


def _named(case: Case, target: str) -> Text:
    return msg("{case}, {target}", case=case.name, target=target)


def _cases() -> Iterator[Case]:
    weight = np.random.default_rng(1).standard_normal((_FILTERS, 3, 3, 3)).astype(np.float32)
    yield Case(msg("identity"), "Identity", {}, lambda x: x, {})
    yield Case(
        msg("convolution"), "Conv", {"w": weight}, lambda x: _convolve(x, weight), {"pads": [1] * 4}
    )


def _convolve(x: Array, weight: Array) -> Array:
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    return np.asarray(np.einsum("nchwij,fcij->nfhw", windows, weight))


def _write(case: Case, path: Path) -> None:
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    shape = case.expected(np.ones(_SHAPE, np.float32)).shape
    graph = helper.make_graph(
        [helper.make_node(case.node, ["x", *case.inputs], ["y"], **case.attributes)],
        "smoke",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, _SHAPE)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(array, name) for name, array in case.inputs.items()],
    )
    opset = [helper.make_opsetid("", 18)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), path)
