"""Stores a unit's kernel as one file: a line of JSON, then the cubin, which a library's call does
not have; without a kernel, only the unit."""

from __future__ import annotations

import json
from pathlib import Path

from tvmscope.cuda import units
from tvmscope.cuda.cubins.compiled_kernel import CompiledKernel
from tvmscope.cuda.library.call import LibraryCall, from_json
from tvmscope.cuda.units import Unit

_WRITTEN = ("output", "sum")
_MARK = b'{"tvmscope-unit": '


def write(path: Path, unit: Unit, kernel: CompiledKernel | LibraryCall | None = None) -> None:
    """Write the file atomically."""
    head = {"tvmscope-unit": unit.to_json(), "kernel": kernel and kernel.to_json()}
    cubin = kernel.cubin if isinstance(kernel, CompiledKernel) else b""
    scratch = path.with_suffix(".part")
    scratch.write_bytes(json.dumps(head).encode() + b"\n" + cubin)
    scratch.replace(path)


def holds_unit(path: Path) -> bool:
    """Whether a file has this format."""
    with path.open("rb") as file:
        return file.read(len(_MARK)) == _MARK


def read(path: Path) -> tuple[Unit, CompiledKernel | LibraryCall | None]:
    """Return the unit, and its kernel if the file has one."""
    head, _, cubin = path.read_bytes().partition(b"\n")
    data = json.loads(head)
    unit, kernel = units.from_json(data["tvmscope-unit"]), data["kernel"]
    if kernel is None:
        return unit, None
    if "library" in kernel:
        return unit, from_json(kernel)
    return unit, CompiledKernel.from_json(kernel, cubin)


def roles(unit: Unit) -> tuple[str, ...]:
    """Return the arguments with which a unit is checked and timed: its inputs, then its output."""
    return (*(t.role for t in unit.tensors if t.role not in _WRITTEN), "output")


def arguments(unit: Unit) -> tuple[tuple[tuple[int, ...], str], ...]:
    """Return shape and type of each argument."""
    tensors = {t.role: t for t in unit.tensors}
    return tuple((tensors[role].shape, tensors[role].dtype) for role in roles(unit))
