"""Writes a folder that shows a difference in one run: a script, its inputs, and the smallest model.

These functions run in the process that has the model under study (see `prefixes`).
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tvm

from tvmscope.compiler.bisect import framework_values, prefixes
from tvmscope.compiler.targets import to_tvm
from tvmscope.errors import BuildError, one_line
from tvmscope.messages import msg
from tvmscope.storage.files import write_npz, write_text_atomic

SCRIPT = "reproduce.py"
_SCRIPTS = Path(__file__).parent / "reproducers"


def framework(file: str) -> None:
    """Write the framework's results of each source: `i.j` is result j of source i."""
    here = prefixes.study()
    framework_values.write_values(here.prepared, here.imported.nodes, file)


def write_operator(source: int, folder: str, tolerance: float, what: str) -> None:
    """Write the framework's operator of a source alone, to be imported by TVM."""
    here, place = prefixes.study(), Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    try:
        framework_values.write_operator(here.prepared, here.imported.nodes[source], place)
    except Exception as e:  # a node with inner graphs, or a program that torch cannot export
        raise BuildError(
            msg("the operator cannot be extracted: {reason}", reason=one_line(e))
        ) from e
    _finish("importer.py", place, {"tolerance": tolerance, "what": what})


def write_model(folder: str, tolerance: float, what: str) -> None:
    """Write the whole model, if no operator alone shows the difference."""
    here, place = prefixes.study(), Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    form = here.prepared.model.format
    source = here.prepared.onnx_path if form == "onnx" else here.prepared.pt2_path
    for stale in ("model.onnx", "model.pt2"):
        (place / stale).unlink(missing_ok=True)
    shutil.copyfile(source, place / source.name)
    shutil.copyfile(here.prepared.inputs_path, place / "inputs.npz")
    _finish("importer.py", place, {"tolerance": tolerance, "what": what})


def write_pair(
    low: int,
    high: int,
    index: int | None,
    known: Sequence[int],
    values: str,
    kernel: str | None,
    folder: str,
    tolerance: float,
    what: str,
) -> None:
    """Write one binding of state `low`, cut out at known values, before and after passes to `high`.

    Without an index, write the whole model; with a `kernel`, only that is taken from state `high`.
    """
    here, place = prefixes.study(), Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    given = framework_values.inputs_of(here.prepared)
    try:
        if index is None:
            before = here.states[low].module
            params: list[int | str] = [*given]
        else:
            before, params = prefixes.cut(low, index, known)
            with np.load(values) as archive:
                given |= {str(p): archive[str(p)] for p in params if isinstance(p, int)}
        if kernel is not None:
            after = prefixes.transplant(before, kernel, high)
        elif index is None:
            after = here.states[high].module
        else:
            after = prefixes.apply(before, low, high)
    except Exception as e:  # a pass may need more of the model than one operator
        raise BuildError(
            msg("the operator cannot be extracted: {reason}", reason=one_line(e))
        ) from e
    for name, module in (("before", before), ("after", after)):
        write_text_atomic(place / f"{name}.json", tvm.ir.save_json(module))
        write_text_atomic(place / f"{name}.txt", module.script(show_meta=False))
    write_npz(place / "inputs.npz", {str(p): given[str(p)] for p in params})
    done = low if kernel is not None else high
    finish = {"before": here.finishing(low), "after": here.finishing(done)}
    meta = {"finish": finish, "inputs": [str(p) for p in params]}
    _finish("module_pair.py", place, meta | {"tolerance": tolerance, "what": what})


def _finish(script: str, folder: Path, meta: dict[str, Any]) -> None:
    target = to_tvm(prefixes.study().target)
    shutil.copyfile(_SCRIPTS / script, folder / SCRIPT)
    write_text_atomic(folder / "meta.json", json.dumps({"target": target, **meta}, indent=1))
