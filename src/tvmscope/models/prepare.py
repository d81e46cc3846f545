"""Writes a model into a folder that every backend reads (`core.model.Prepared`).

It runs in a child process: it imports torch or onnx, and runs the user's code.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import shutil
import sys
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tvmscope.core.model import Model, TensorSpec
from tvmscope.core.options import LoadOptions
from tvmscope.core.prepared import operators, outside_weights
from tvmscope.core.prepared.operators import Operators
from tvmscope.errors import ImportModelError, UsageError, one_line
from tvmscope.extras import install
from tvmscope.messages import Text, msg
from tvmscope.models import inputs as make
from tvmscope.models.api import require
from tvmscope.models.download import fetch
from tvmscope.models.folder import ONNX_ERROR, TorchOrigin, write_json
from tvmscope.models.resolve import Source, classify
from tvmscope.storage.files import map_npz, write_npz

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from tvmscope.models.flat import Call

OPSET = 18
_PICKLE = "module.pkl"
INPUTS, REFERENCE = "inputs.npz", "reference.npz"
_DEAD = 1e-7
"""Outputs that vary by less than this share, or stay below it, verify nothing."""


def prepare(
    source: str, folder: str, options: LoadOptions, pickled_module: str | None = None
) -> Model:
    """Write the prepared folder of `source` and return the model's identity.

    A `.py` source is executed, and so is `pickled_module` (a file by `pickle_module`): give only
    code that you trust.
    """
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    (path / "model.json").unlink(missing_ok=True)  # a folder without it is not complete
    if pickled_module is None:
        resolved = classify(source)
    else:
        if Path(pickled_module).resolve() != (path / _PICKLE).resolve():
            shutil.copyfile(pickled_module, path / _PICKLE)
        resolved = Source.pickled(source, path / _PICKLE)
    with _quiet():
        write = _prepare_onnx if resolved.format == "onnx" else _prepare_torch
        return write(resolved, path, options)


def _prepare_onnx(source: Source, folder: Path, options: LoadOptions) -> Model:
    require("onnx", "onnxruntime", install=install("tvm"))
    from tvmscope.models.loaders import onnx_graph as graph
    from tvmscope.models.loaders.onnx_vision import vision_of_onnx

    file = fetch(source.ref, offline=options.offline) if source.is_url else Path(source.ref)
    model = graph.read(file, source.text)
    given = None if options.inputs_file is None else make.read_npz(options.inputs_file)
    specs = graph.bind(model, options, given)
    limits = graph.index_limits(model)
    if options.inputs_file is not None:
        arrays = make.from_file(options.inputs_file, specs)
    else:
        arrays = {s.name: make.seeded(s, options.seed, limits.get(s.name)) for s in specs}
    named = graph.name_nodes(model)
    graph.copy_outside(model, file.parent, folder)
    data = graph.serialize(model, source.text)
    (folder / "model.onnx").write_bytes(data)
    reference, remarks = graph.run_reference(folder / "model.onnx", arrays, source.text)
    nodes: dict[str, tuple[str, ...]] = {node: (name,) for node, name in named.items()}
    operators.write(Operators(names=tuple(named.values()), onnx=nodes), folder)
    write_npz(folder / INPUTS, arrays)
    write_npz(folder / REFERENCE, reference)
    prepared = Model(
        name=source.name,
        source=source.text,
        format="onnx",
        inputs=tuple(specs),
        outputs=_specs(reference),
        digest=_bytes_digest(data, folder, specs),
        weights="file",
        notes=remarks + _dead_notes(reference),
    )
    write_json(folder, prepared, vision=vision_of_onnx(model))
    return prepared


def _prepare_torch(source: Source, folder: Path, options: LoadOptions) -> Model:
    require("torch")
    import torch

    from tvmscope.models import digest, flat, operator_names
    from tvmscope.models.loaders.load import load_torch

    loaded = load_torch(source, options)
    call = flat.flat_call(loaded.module, loaded.args, loaded.kwargs)
    arrays = _kept(folder / INPUTS, _choose_inputs(call, options))
    loaded = replace(loaded, args=(), kwargs={})  # from here on only the file has them
    call = flat.Call(call.module, call.names, tuple(map(torch.from_numpy, arrays.values())))
    outputs = _run_eager(source, call, options)
    found = flat.flatten(outputs)
    if not found:
        raise ImportModelError(
            msg("'{source}' returns no tensor; there is nothing to verify", source=source.text)
        )
    exportable = call if flat.is_plain(outputs) else flat.flat_outputs(call)
    reference = _kept(folder / REFERENCE, {n: flat.to_numpy(t) for n, t in found.items()})
    del outputs, found
    program = _export(source, exportable)
    names = operator_names.stamp(program, wrappers=flat.wrappers(exportable.module))
    specs, state = _specs(arrays), digest.state_digest(loaded.module)
    _save_program(program, folder / "model.pt2")
    onnx_nodes = _export_onnx(program, folder, list(arrays), list(reference), options)
    operators.write(Operators(names=names, onnx=onnx_nodes), folder)
    model = Model(
        name=source.name,
        source=source.text,
        format="torch",
        inputs=specs,
        outputs=_specs(reference),
        digest=digest.program_digest(program, state, specs),
        weights=loaded.weights,
        notes=loaded.notes + _dead_notes(reference),
    )
    write_json(folder, model, TorchOrigin(source, options.seed, state), loaded.vision)
    return model


def _choose_inputs(call: Call, options: LoadOptions) -> dict[str, make.Array]:
    import torch

    from tvmscope.models.flat import to_numpy

    for name, tensor in zip(call.names, call.tensors, strict=True):
        if tensor.dtype == torch.bfloat16:
            raise UsageError(
                msg("input '{name}' is bfloat16; give it as float32 and set --precision", name=name)
            )
    examples = {n: to_numpy(t) for n, t in zip(call.names, call.tensors, strict=True)}
    return make.choose(examples, options)


def _run_eager(source: Source, call: Call, options: LoadOptions) -> Any:
    import torch

    try:
        with torch.no_grad():
            return call.module(*call.tensors)
    except Exception as e:  # the model's own code may raise anything
        shapes = [f"{n} {tuple(t.shape)}" for n, t in zip(call.names, call.tensors, strict=True)]
        text = msg(
            "'{source}' fails in PyTorch on {shapes}: {type}: {reason}",
            source=source.text,
            shapes=shapes,
            type=type(e).__name__,
            reason=one_line(e),
        )
        if options.shapes or options.batch_size or options.inputs_file:
            raise UsageError(
                msg("{text}; check --shapes, --batch-size and --inputs", text=text)
            ) from e
        raise ImportModelError(msg("{text}; check its example inputs", text=text)) from e


def _export(source: Source, call: Call) -> ExportedProgram:
    import torch

    try:
        with torch.no_grad():
            program = torch.export.export(call.module, call.tensors, strict=False)
    except Exception as e:  # torch.export raises errors of every part of torch
        raise ImportModelError(
            msg(
                "torch.export cannot capture '{source}': {type}: {reason}",
                source=source.text,
                type=type(e).__name__,
                reason=one_line(e),
            )
        ) from e
    # Its own names may differ (it writes them in lower case): inputs are matched by position.
    kind = torch.export.graph_signature.InputKind.USER_INPUT
    count = sum(spec.kind is kind for spec in program.graph_signature.input_specs)
    if count != len(call.names):
        raise ImportModelError(
            msg(
                "torch.export gave '{source}' {count} inputs in place of {names}; pass each tensor "
                "as a parameter of forward",
                source=source.text,
                count=count,
                names=list(call.names),
            )
        )
    return program


def _export_onnx(
    program: ExportedProgram,
    folder: Path,
    input_names: list[str],
    output_names: list[str],
    options: LoadOptions,
) -> dict[str, tuple[str, ...]]:
    """Write model.onnx, or the reason why there is none: other backends do not need it.

    Return the operators that each of its nodes computes.
    """
    for stale in ("model.onnx", ONNX_ERROR):
        (folder / stale).unlink(missing_ok=True)
    if not options.need_onnx:
        return {}
    import torch

    from tvmscope.models.operator_names import of_onnx_nodes

    try:
        exported = torch.onnx.export(
            program,
            f=folder / "model.onnx",
            dynamo=True,
            opset_version=OPSET,
            external_data=False,
            input_names=input_names,
            output_names=output_names,
            verbose=False,
        )
    except Exception as e:  # the exporter raises errors of every part of torch and onnxscript
        (folder / "model.onnx").unlink(missing_ok=True)
        (folder / ONNX_ERROR).write_text(f"{type(e).__name__}: {one_line(e)}\n", encoding="utf-8")
        return {}
    return of_onnx_nodes(exported)


def _kept(file: Path, arrays: Mapping[str, make.Array]) -> dict[str, make.Array]:
    """Return the arrays as views of a file: their sources need not stay in memory."""
    write_npz(file, arrays)
    return map_npz(file)


def _save_program(program: ExportedProgram, file: Path) -> None:
    """Save the program without the example inputs, which are already beside it."""
    import torch

    examples, program.example_inputs = program.example_inputs, None
    try:
        torch.export.save(program, file)
    finally:
        program.example_inputs = examples


def _specs(arrays: Mapping[str, make.Array]) -> tuple[TensorSpec, ...]:
    return tuple(TensorSpec(n, tuple(a.shape), str(a.dtype)) for n, a in arrays.items())


def _bytes_digest(data: bytes, folder: Path, specs: list[TensorSpec]) -> str:
    total = hashlib.sha256(data)
    for file in sorted(folder.glob(outside_weights.FILES)):
        with file.open("rb") as stream:
            total.update(hashlib.file_digest(stream, "sha256").digest())
    total.update(repr([(s.name, s.shape, s.dtype) for s in specs]).encode())
    return total.hexdigest()


def _dead_notes(reference: Mapping[str, make.Array]) -> tuple[Text, ...]:
    """Warn if an output is constant, about zero or not finite: comparing it proves little."""
    notes = []
    for name, array in reference.items():
        if array.dtype.kind != "f" or array.size < 2:
            continue
        low, high = float(array.min()), float(array.max())  # NaN if there is one
        if not np.isfinite((low, high)).all():
            notes.append(
                msg(
                    "output '{name}' is not finite on these inputs; give others with --inputs",
                    name=name,
                )
            )
        elif high - low <= _DEAD * max(1.0, abs(low), abs(high)):
            notes.append(
                msg(
                    "output '{name}' is constant or about zero: verifying it proves little",
                    name=name,
                )
            )
    return tuple(notes)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep stdout for machine output, and hide exporters' remarks from the user."""
    loggers = [logging.getLogger(name) for name in ("onnxscript", "onnx_ir", "torch.onnx")]
    levels = [logger.level for logger in loggers]
    with contextlib.redirect_stdout(sys.stderr), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for logger in loggers:
            logger.setLevel(logging.CRITICAL)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)
