"""Reads an ONNX model, binds its dynamic dimensions and runs it as the reference."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError, EncodeError

from tvmscope.core.model import TensorSpec
from tvmscope.core.options import LoadOptions
from tvmscope.core.prepared import outside_weights
from tvmscope.errors import ImportModelError, UsageError, one_line
from tvmscope.extras import hidden
from tvmscope.messages import Text, msg
from tvmscope.models.inputs import Array, Shape, check_batch, check_names
from tvmscope.quantities import format_shape

with hidden("torch"):  # ONNX Runtime's tools would import it: two seconds, and it is not used here
    from onnxruntime.tools.onnx_model_utils import (
        fix_output_shapes,
        make_dim_param_fixed,
        make_input_shape_fixed,
    )

_FOLLOWED = {"Cast", "Identity", "Reshape", "Unsqueeze", "Squeeze", "Flatten"}
"""Operators through which an index stays an index."""
_RUNTIME_DOMAIN = "com.microsoft"
"""ONNX Runtime's own operators; only a run shows which ones it has."""


def read(path: Path, text: str) -> onnx.ModelProto:
    """The checked model with its external data inside, but for large weights over 2 GiB in all."""
    try:
        model = _load(path)
    except DecodeError as e:
        raise ImportModelError(
            msg(
                "'{text}' is not an ONNX file, or is truncated; export or download it again",
                text=text,
            )
        ) from e
    except (onnx.checker.ValidationError, OSError, ValueError) as e:
        gist = one_line(e)
        if "external" in str(e).lower() or "exist" in str(e):
            raise ImportModelError(
                msg(
                    "'{text}': its external data is missing ({gist}); put it beside the model",
                    text=text,
                    gist=gist,
                )
            ) from e
        raise ImportModelError(
            msg(
                "'{text}' is not a valid ONNX model ({gist}); export it again", text=text, gist=gist
            )
        ) from e
    _check_operators(model, text)
    constants = {tensor.name for tensor in model.graph.initializer}
    kept = [value for value in model.graph.input if value.name not in constants]
    if len(kept) != len(model.graph.input):  # old exporters list weights as inputs
        del model.graph.input[:]
        model.graph.input.extend(kept)
        model.ir_version = max(model.ir_version, 4)  # from 4 on, weights need not be inputs
    return model


def _load(path: Path) -> onnx.ModelProto:
    model = onnx.load(path, load_external_data=False)
    outside = outside_weights.outside(model.graph)
    if sum(map(outside_weights.most_bytes, outside)) < outside_weights.MOST_BYTES:
        onnx.external_data_helper.load_external_data_for_model(model, str(path.parent))
        onnx.checker.check_model(model)
        return model
    onnx.checker.check_model(str(path))  # it also refuses data outside of the model's folder
    for tensor in outside:
        if outside_weights.most_bytes(tensor) < outside_weights.SMALL_BYTES:
            onnx.external_data_helper.load_external_data_for_tensor(tensor, str(path.parent))
            tensor.data_location = onnx.TensorProto.DEFAULT
            del tensor.external_data[:]
    return model


def copy_outside(model: onnx.ModelProto, source: Path, folder: Path) -> None:
    """Copy the files of large weights into the prepared folder, and let the model name these."""
    for stale in folder.glob(outside_weights.FILES):
        stale.unlink()
    outside = outside_weights.outside(model.graph)
    names = outside_weights.files_of(outside)
    for place, name in names.items():
        shutil.copyfile(source / place, folder / name)
    outside_weights.rename(outside, names)


def bind(
    model: onnx.ModelProto, options: LoadOptions, arrays: Mapping[str, Array] | None = None
) -> list[TensorSpec]:
    """Fix every input's shape in place and return the inputs.

    `--shapes` has priority, then the shapes of given `arrays`, then the batch size (or 1) for
    dimension 0; a symbol bound once is bound everywhere. `--shapes` may also change sizes that the
    file fixes, if the graph allows it.
    """
    _forget_anonymous(model.graph)
    inputs = {value.name: value for value in model.graph.input}
    check_names("--shapes", options.shapes, inputs)
    check_batch(options, inputs)
    dims = {name: _dims(value) for name, value in inputs.items()}
    symbols: dict[str, int] = {}
    given = {n: a.shape for n, a in (arrays or {}).items() if n in inputs} | options.shapes
    misfits = [
        misfit
        for name, shape in given.items()
        for misfit in _match(name, dims[name], shape, symbols, name in options.shapes)
    ]
    for name, shape in dims.items():
        if shape and name not in given:
            _bind_batch(name, shape, symbols, options.batch_size)
    for name, shape in dims.items():
        for axis, dim in enumerate(shape):
            if isinstance(dim, str):
                if dim not in symbols:
                    raise UsageError(_unbound(name, shape, axis))
                shape[axis] = symbols[dim]
    if misfits:
        _reshape(model, dims, misfits[0])
    _fix(model, dims, symbols)
    return [TensorSpec(n, _fixed(dims[n]), _dtype(value)) for n, value in inputs.items()]


def _check_operators(model: onnx.ModelProto, text: str) -> None:
    """Name every undefined operator; ONNX Runtime would report only the first."""
    defined = {(f.domain, f.name) for f in model.functions}
    foreign: dict[str, list[str]] = {}
    for index, node in enumerate(model.graph.node):
        known = onnx.defs.has(node.op_type, node.domain) or (node.domain, node.op_type) in defined
        if not known and not node.domain.startswith(_RUNTIME_DOMAIN):
            place = foreign.setdefault(f"{node.domain}.{node.op_type}", [])
            place.append(node.name or str(index))
    if foreign:
        listed = [
            msg("{name} x{n} (first at node '{node}')", name=name, n=len(nodes), node=nodes[0])
            for name, nodes in foreign.items()
        ]
        raise ImportModelError(
            msg(
                "'{text}' has operators that neither ONNX nor ONNX Runtime defines: {listed}; "
                "export it with standard operators instead",
                text=text,
                listed=listed,
            )
        )


def index_limits(model: onnx.ModelProto) -> dict[str, int]:
    """Return the length of the table for integer inputs that index weights (token ids)."""
    tables = {tensor.name: tensor.dims for tensor in model.graph.initializer}
    origin = {value.name: value.name for value in model.graph.input}
    limits: dict[str, int] = {}
    for node in model.graph.node:  # in topological order, as the standard requires
        if node.op_type in _FOLLOWED and node.input[0] in origin:
            origin[node.output[0]] = origin[node.input[0]]
        elif node.op_type == "Gather" and node.input[0] in tables and node.input[1] in origin:
            axis = next((a.i for a in node.attribute if a.name == "axis"), 0)
            name, size = origin[node.input[1]], tables[node.input[0]][axis]
            limits[name] = min(limits.get(name, size), size)
    return limits


def name_nodes(model: onnx.ModelProto) -> dict[str, str]:
    """Give every node a unique name; return operator names, `node/type`, by node."""
    named: dict[str, str] = {}
    for index, node in enumerate(model.graph.node):
        if not node.name or node.name in named:
            node.name = f"{node.name or node.op_type}_{index}"
        named[node.name] = f"{node.name}/{node.op_type}"
    return named


def serialize(model: onnx.ModelProto, text: str) -> bytes:
    """Return the model's bytes, the same for the same model."""
    try:
        data: bytes = model.SerializeToString(deterministic=True)
    except (ValueError, EncodeError) as e:
        raise ImportModelError(
            msg(
                "'{text}' is over 2 GiB, more than one ONNX file can hold; save it with external "
                "data",
                text=text,
            )
        ) from e
    return data


def run_reference(
    file: Path, arrays: Mapping[str, Array], text: str
) -> tuple[dict[str, Array], tuple[str, ...]]:
    """Return outputs of ONNX Runtime with every graph optimisation off, and remarks about them.

    If it has no kernel for an operator's type, ONNX's own evaluator in numpy is used.
    """
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    notes: tuple[str, ...] = ()
    try:
        session = ort.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
        names = [output.name for output in session.get_outputs()]
        outputs = dict(zip(names, session.run(names, dict(arrays)), strict=True))
    except ort.capi.onnxruntime_pybind11_state.NotImplemented as e:
        outputs = _evaluate(file, arrays, text)
        notes = (msg("verified by ONNX's own evaluator: {reason}", reason=one_line(e)),)
    except Exception as e:  # onnxruntime has a dozen error classes without a common base
        raise ImportModelError(
            msg(
                "'{text}' does not run in ONNX Runtime ({reason}); if the generated inputs are "
                "the cause, give real ones with --inputs x.npz",
                text=text,
                reason=one_line(e),
            )
        ) from e
    for name, value in outputs.items():
        if not isinstance(value, np.ndarray):
            raise ImportModelError(
                msg("'{text}': output '{name}' is not a tensor", text=text, name=name)
            )
    return outputs, notes


def _evaluate(file: Path, arrays: Mapping[str, Array], text: str) -> dict[str, Array]:
    from onnx.reference import ReferenceEvaluator

    try:
        evaluator = ReferenceEvaluator(onnx.load(file))
        return dict(zip(evaluator.output_names, evaluator.run(None, dict(arrays)), strict=True))
    except Exception as e:  # it raises any error of numpy and of the operators' code
        raise ImportModelError(
            msg(
                "'{text}' runs neither in ONNX Runtime nor in ONNX's evaluator ({reason})",
                text=text,
                reason=one_line(e),
            )
        ) from e


def _dims(value: Any) -> list[int | str]:
    kind = value.type.WhichOneof("value")
    if kind != "tensor_type" or value.type.tensor_type.elem_type == onnx.TensorProto.STRING:
        raise ImportModelError(
            msg("input '{name}' is not a numeric tensor; remove it from the graph", name=value.name)
        )
    return [  # a dimension without a name gets a unique one
        dim.dim_value
        if dim.HasField("dim_value") and dim.dim_value > 0
        else dim.dim_param or f"{value.name}.{axis}"
        for axis, dim in enumerate(value.type.tensor_type.shape.dim)
    ]


def _forget_anonymous(graph: onnx.GraphProto) -> None:
    """Clear sizes that exporters write as `?`: two of them are not one symbol."""
    for value in (*graph.input, *graph.output, *graph.value_info):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param and not re.search(r"\w", dim.dim_param):
                dim.Clear()


def _reshape(model: onnx.ModelProto, dims: dict[str, list[int | str]], misfit: Text) -> None:
    """Infer all shapes again from other input shapes; raise if a node forbids them."""
    graph = model.graph
    del graph.value_info[:]
    for value in graph.output:
        value.type.tensor_type.ClearField("shape")
    for value in graph.input:
        for dim, size in zip(value.type.tensor_type.shape.dim, dims[value.name], strict=True):
            dim.Clear()
            dim.dim_value = int(size)
    try:
        inferred = onnx.shape_inference.infer_shapes(model, True, True, data_prop=True)
    except Exception as e:  # RuntimeError or InferenceError by version
        raise UsageError(
            msg("{misfit}; this node forbids it: {reason}", misfit=misfit, reason=one_line(e))
        ) from e
    del graph.output[:]
    graph.output.extend(inferred.graph.output)


def _match(
    name: str, dims: list[int | str], shape: Shape, symbols: dict[str, int], changes: bool
) -> Iterator[Text]:
    """Bind symbols to sizes; yield remarks about fixed sizes that change, if they may."""
    pattern = "x".join(map(str, dims)) or "scalar"
    misfit = msg(
        "input '{name}' is {pattern} in the file; {shape} does not fit",
        name=name, pattern=pattern, shape=format_shape(shape),
    )  # fmt: skip
    if len(shape) != len(dims):
        raise UsageError(msg("{misfit}: give {count} dimensions", misfit=misfit, count=len(dims)))
    for axis, (dim, size) in enumerate(zip(list(dims), shape, strict=True)):
        known = symbols.setdefault(dim, size) if isinstance(dim, str) else dim
        if known == size:
            continue
        if isinstance(dim, str):
            raise UsageError(
                msg("{misfit}: '{dim}' is {known} elsewhere", misfit=misfit, dim=dim, known=known)
            )
        text = msg(
            "{misfit}: give {dim} for {size}, or export the model with a dynamic dimension there",
            misfit=misfit,
            dim=dim,
            size=size,
        )
        if not changes:
            raise UsageError(text)
        dims[axis] = size
        yield text


def _bind_batch(
    name: str, dims: list[int | str], symbols: dict[str, int], batch_size: int | None
) -> None:
    if isinstance(dims[0], str):
        symbols.setdefault(dims[0], batch_size or 1)
    elif batch_size is not None and dims[0] != batch_size:
        raise UsageError(
            msg(
                "--batch-size {batch_size}: input '{name}' is fixed at {size} in the file; "
                "export the model with a dynamic batch",
                batch_size=batch_size,
                name=name,
                size=dims[0],
            )
        )


def _unbound(name: str, dims: list[int | str], axis: int) -> Text:
    example = [
        "N" if i == axis else "1" if isinstance(d, str) else str(d) for i, d in enumerate(dims)
    ]
    return msg(
        "input '{name}' has the dynamic dimension '{dimension}' (number {axis}); give its size: "
        "--shapes {name}:{example}",
        name=name,
        dimension=str(dims[axis]),
        axis=axis,
        example="x".join(example),
    )


def _fix(model: onnx.ModelProto, dims: dict[str, list[int | str]], symbols: dict[str, int]) -> None:
    for symbol, size in symbols.items():
        make_dim_param_fixed(model.graph, symbol, size)
    for value in model.graph.input:
        make_input_shape_fixed(model.graph, value.name, _fixed(dims[value.name]))
    taken = outside_weights.take_out(model.graph)  # a check there would look for their files
    try:
        fix_output_shapes(model)
    except Exception as e:  # shape inference raises RuntimeError or InferenceError by version
        raise ImportModelError(
            msg("shapes do not fit together: {reason}; check --shapes", reason=one_line(e))
        ) from e
    outside_weights.put_back(model.graph, taken)


def _fixed(dims: list[int | str]) -> Shape:
    return tuple(int(dim) for dim in dims)


def _dtype(value: Any) -> str:
    dtype = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
    if dtype.kind not in "fiub":
        raise ImportModelError(
            msg(
                "input '{name}' is {dtype}, for which no values can be generated",
                name=value.name,
                dtype=str(dtype),
            )
        )
    return str(dtype)
