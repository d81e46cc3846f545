"""Computes each operator's results in the model's own framework, and cuts out one operator."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tvmscope.core.model import Prepared
from tvmscope.errors import ImportModelError, one_line
from tvmscope.messages import msg
from tvmscope.storage.files import write_npz

if TYPE_CHECKING:
    import onnx

Array = np.ndarray[Any, Any]


def write_values(prepared: Prepared, nodes: Iterable[str], file: str) -> None:
    """Run the framework and write every result of these nodes: `i.j` is result j of node i."""
    found = _onnx_tensors(prepared) if prepared.model.format == "onnx" else _torch_values(prepared)
    write_npz(
        Path(file),
        {
            f"{i}.{j}": array
            for i, node in enumerate(nodes)
            for j, array in enumerate(found.get(node, ()))
        },
    )


def write_operator(prepared: Prepared, node: str, folder: Path) -> None:
    """Write a model of one operator, `model.onnx` or `model.pt2`, and its inputs in the model."""
    if prepared.model.format == "onnx":
        _write_onnx_node(prepared, node, folder)
    else:
        _write_torch_node(prepared, node, folder)


def inputs_of(prepared: Prepared) -> dict[str, Array]:
    """Return the model's own inputs, by name."""
    with np.load(prepared.inputs_path) as archive:
        return {spec.name: archive[spec.name] for spec in prepared.model.inputs}


# ---- ONNX ------------------------------------------------------------------------------------


def _simplified(prepared: Prepared) -> onnx.ModelProto:
    """Return the graph that is imported."""
    import onnx

    from tvmscope.compiler.frontends.onnx.importer import expanded, simplify

    return simplify(expanded(onnx.load(prepared.onnx_path)))[0]


def _onnx_run(prepared: Prepared) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """Return the graph and each of its tensors, from ONNX Runtime with all optimisations off."""
    import onnx
    import onnxruntime as ort

    model = _simplified(prepared)
    there = {value.name for value in model.graph.output}
    for node in model.graph.node:
        for name in node.output:
            if name and name not in there:
                there.add(name)
                model.graph.output.append(onnx.ValueInfoProto(name=name))
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    try:
        providers = ["CPUExecutionProvider"]
        session = ort.InferenceSession(model.SerializeToString(), options, providers=providers)
        names = [output.name for output in session.get_outputs()]
        results = session.run(names, inputs_of(prepared))
    except Exception as e:  # onnxruntime has a dozen error classes without a common base
        raise ImportModelError(
            msg(
                "its intermediate values cannot be read from ONNX Runtime: {reason}",
                reason=one_line(e),
            )
        ) from e
    tensors = dict(zip(names, results, strict=True)) | inputs_of(prepared)
    return model, {n: a for n, a in tensors.items() if isinstance(a, np.ndarray)}


def _onnx_tensors(prepared: Prepared) -> dict[str, list[Array]]:
    model, tensors = _onnx_run(prepared)
    return {
        node.name: [tensors[name] for name in node.output if name in tensors]
        for node in model.graph.node
    }


def _write_onnx_node(prepared: Prepared, name: str, folder: Path) -> None:
    import onnx
    from onnx import helper, numpy_helper

    model, tensors = _onnx_run(prepared)
    node = next(n for n in model.graph.node if n.name == name)
    weights = {w.name: w for w in model.graph.initializer}
    for other in model.graph.node:  # importers need the values of constants, so they stay constants
        if other.op_type == "Constant":
            value = tensors[other.output[0]]
            weights[other.output[0]] = numpy_helper.from_array(value, other.output[0])
    given = [n for n in dict.fromkeys(node.input) if n and n not in weights]

    def described(tensor: str) -> onnx.ValueInfoProto:
        array = tensors[tensor]
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        return helper.make_tensor_value_info(tensor, kind, array.shape)

    graph = helper.make_graph(
        [node],
        name,
        [described(n) for n in given],
        [described(n) for n in node.output if n],
        [weights[n] for n in dict.fromkeys(node.input) if n in weights],
    )
    alone = helper.make_model(
        graph,
        opset_imports=model.opset_import,
        ir_version=model.ir_version,
        functions=model.functions,
    )
    onnx.save(alone, folder / "model.onnx")
    write_npz(folder / "inputs.npz", {n: tensors[n] for n in given})


# ---- PyTorch ---------------------------------------------------------------------------------


def _torch_run(prepared: Prepared) -> tuple[Any, dict[str, Any]]:
    """Return the program that is imported, and the value of each of its nodes in eager PyTorch."""
    import torch

    from tvmscope.compiler.frontends.torch.importer import read_program

    program = read_program(prepared)
    arrays = iter(inputs_of(prepared).values())
    kinds = torch.export.graph_signature.InputKind
    stored = {**program.state_dict, **program.constants}
    args = [
        torch.from_numpy(next(arrays)) if spec.kind is kinds.USER_INPUT else stored[spec.target]
        for spec in program.graph_signature.input_specs
    ]
    seen: dict[str, Any] = {}

    class Recorder(torch.fx.Interpreter):
        def run_node(self, n: Any) -> Any:
            seen[n.name] = super().run_node(n)
            return seen[n.name]

    with torch.no_grad():
        Recorder(program.graph_module).run(*args)
    return program, seen


def _torch_values(prepared: Prepared) -> dict[str, list[Array]]:
    _, seen = _torch_run(prepared)
    return {name: _arrays(value) for name, value in seen.items()}


def _arrays(value: Any) -> list[Array]:
    items = value if isinstance(value, list | tuple) else [value]
    return [item.detach().numpy() for item in items if hasattr(item, "detach")]


def _write_torch_node(prepared: Prepared, name: str, folder: Path) -> None:
    import torch

    program, seen = _torch_run(prepared)
    node = next(n for n in program.graph.nodes if n.name == name)
    weights = {
        spec.arg.name: spec.target
        for spec in program.graph_signature.input_specs
        if spec.target is not None
    }
    root, graph = torch.nn.Module(), torch.fx.Graph()
    inputs: dict[str, Any] = {}
    made: dict[Any, Any] = {}
    for used in node.all_input_nodes:
        if used.name in weights:  # importers treat constants specially, so they stay constants
            root.register_buffer(used.name, seen[used.name].detach())
            made[used] = graph.get_attr(used.name)
        else:
            inputs[used.name] = seen[used.name]
    for used in node.all_input_nodes:
        if used.name in inputs:
            made[used] = graph.placeholder(used.name)
    copy = graph.node_copy(node, lambda n: made[n])
    if isinstance(seen[name], list | tuple):
        count = len(seen[name])
        graph.output(tuple(graph.call_function(operator.getitem, (copy, i)) for i in range(count)))
    else:
        graph.output(copy)
    alone = torch.export.export(torch.fx.GraphModule(root, graph), tuple(inputs.values()))
    torch.export.save(alone, folder / "model.pt2")
    write_npz(folder / "inputs.npz", {n: t.detach().numpy() for n, t in inputs.items()})
