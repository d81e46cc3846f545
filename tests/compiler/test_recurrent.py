"""RNN, GRU and LSTM of ONNX against ONNX Runtime, on forms that ONNX's own tests do not show."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
import tvm
from onnx import TensorProto, helper, numpy_helper

from support.paired_graph import rules
from tvmscope import onnx_backend
from tvmscope.compiler import in_memory, pipeline, targets
from tvmscope.compiler.describe.sources import bindings
from tvmscope.compiler.frontends.onnx.importer import translate
from tvmscope.compiler.frontends.torch import importer
from tvmscope.core.options import CompileOptions

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


def layer(
    kind: str, steps: int, *, both: bool = False, lengths: bool = False, **attributes: Any
) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A layer of 5 states on 3 rows of 4 numbers, with biases and starting states."""
    random = np.random.default_rng(0)
    ways, hidden, width, batch = 1 + both, 5, 4, 3
    gates = GATES[kind] * hidden

    def weight(name: str, *shape: int) -> onnx.TensorProto:
        return numpy_helper.from_array(random.uniform(-0.5, 0.5, shape).astype(np.float32), name)

    held = [weight("W", ways, gates, width), weight("R", ways, gates, hidden)]
    held += [weight("B", ways, 2 * gates), weight("h", ways, batch, hidden)]
    names = ["x", "W", "R", "B", "count" if lengths else "", "h"]
    results = ["y", "last"]
    if kind == "LSTM":
        held += [weight("c", ways, batch, hidden), weight("P", ways, 3 * hidden)]
        names, results = [*names, "c", "P"], [*results, "cell"]
    if lengths:
        held.append(numpy_helper.from_array(np.array([steps, 2, 1], np.int32), "count"))
    if both:
        attributes["direction"] = "bidirectional"
    node = helper.make_node(kind, names, results, hidden_size=hidden, **attributes)
    graph = helper.make_graph(
        [node],
        kind,
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (steps, batch, width))],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in results],
        held,
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)
    return made, {"x": random.standard_normal((steps, batch, width)).astype(np.float32)}


FORMS: dict[str, tuple[str, dict[str, Any]]] = {
    "rnn": ("RNN", {"both": True, "lengths": True}),
    "rnn with relu": ("RNN", {"activations": ["Relu"], "clip": 0.4}),
    "gru": ("GRU", {"both": True, "lengths": True}),
    "gru with the reset inside": ("GRU", {"linear_before_reset": 1, "both": True}),
    "lstm": ("LSTM", {"both": True, "lengths": True}),
    "lstm backwards": ("LSTM", {"direction": "reverse", "clip": 0.3}),
    "lstm of coupled gates": ("LSTM", {"input_forget": 1}),
    "lstm of other activations": ("LSTM", {"activations": ["HardSigmoid", "Softsign", "Relu"]}),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_layer_gives_what_onnx_runtime_gives(form: str) -> None:
    kind, how = FORMS[form]
    model, inputs = layer(kind, 6, **how)
    wanted = onnxruntime.InferenceSession(model.SerializeToString()).run(None, inputs)
    found = onnx_backend.run_model(model, inputs, fallback=False)
    for ours, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", GATES)
def test_the_program_does_not_grow_with_the_steps(kind: str) -> None:
    sizes = set()
    for steps in (2, 512):
        model, inputs = layer(kind, steps)
        sizes.add(len(bindings(translate(model, inputs, "m").module["main"])))
    assert len(sizes) == 1


@pytest.mark.parametrize("batch", [1, 6, 7])
@pytest.mark.parametrize("hidden", [5, 37, 96])
@pytest.mark.parametrize("kind", [torch.nn.RNN, torch.nn.GRU, torch.nn.LSTM])
def test_entries_of_a_batch_go_together(
    kind: type[torch.nn.RNNBase], hidden: int, batch: int
) -> None:
    """Tiles of entries and of columns, whole ones and what is left of them."""
    torch.manual_seed(0)

    class Layer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = kind(11, hidden, batch_first=True, bidirectional=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x)[0]

    block, x = Layer().eval(), torch.randn(batch, 9, 11)
    with torch.no_grad():
        wanted = block(x).numpy()
        program = torch.export.export(block, (x,))
    imported = importer.translate(importer.decomposed(program), "m")
    (found,) = in_memory.compile_here(imported, CompileOptions())([x.numpy()])
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=2e-6)
    target = targets.resolve("cpu")
    made = tvm.target.Target(targets.to_tvm(target))
    lowered = pipeline.run(imported.module, target, made, CompileOptions())
    assert "steps" in rules(lowered.module).values()
    assert lowered.remarks == ()
