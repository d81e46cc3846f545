"""What the calls of all libraries have: types, pointers to the unit's tensors, workspace."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from tvmscope.cuda.config import Config
from tvmscope.cuda.units import ITEM_BYTES, Conv2d, Matmul, Tensor, Unit
from tvmscope.errors import UsageError
from tvmscope.messages import Text, msg
from tvmscope.storage.codec import encode

ROLES = ("input", "weight", "second", "bias", "residual", "output", "workspace")
"""The order of a call's pointers."""
TRIED = 8
"""Calls of each library that a search tries."""
_MOST_WORKSPACE = 32 << 20  # as NVIDIA recommends for Hopper
_PARTS = 16
"""Workspace for this many float32 parts of the output: no algorithm splits a sum further."""
_OUTPUTS = {
    "float16": ("float16", "float32"),
    "bfloat16": ("bfloat16", "float32"),
    "float32": ("float32",),
}


@dataclass(frozen=True, kw_only=True)
class Call:
    """What every call says, whichever library makes it."""

    unit_key: str
    config: Config
    dtype: str
    output: str
    sums: Literal["float32", "tf32"]
    """How float32 values are multiplied: exactly, or rounded to TF32."""
    algorithm: int
    """Its index in the list that the library proposes; the list is requested again on loading,
    because an algorithm's description is valid for one version of the library only."""
    workspace_bytes: int
    arguments: tuple[str, ...]
    """The roles of its pointers, in order."""

    @property
    def hidden_pointers(self) -> int:
        """None after its arguments, unlike generated kernels."""
        return 0

    def to_json(self) -> dict[str, Any]:
        """Return the call's form in artifacts and files."""
        return {name: encode(getattr(self, name)) for name in self.__dataclass_fields__}


def common(unit: Conv2d | Matmul, config: Config) -> dict[str, Any]:
    """Return the fields of `Call` for a unit."""
    return {
        "unit_key": unit.key,
        "config": config,
        "dtype": unit.dtype,
        "output": unit.epilogue.output or unit.dtype,
        "sums": "tf32" if unit.math == "tf32" else "float32",
        "algorithm": config.algorithm,
        "workspace_bytes": workspace_bytes(unit),
        "arguments": tuple(t.role for t in arguments(unit)),
    }


def arguments(unit: Unit) -> tuple[Tensor, ...]:
    """Return a call's tensors in order: the unit's, a bias of the output's type, workspace."""
    output = unit.tensor("output")
    if output is None:
        raise UsageError(msg("{unit}: no output", unit=unit.label))
    workspace = Tensor(role="workspace", dtype="float32", shape=(workspace_bytes(unit) // 4,))
    tensors = [replace(t, dtype=output.dtype) if t.role == "bias" else t for t in unit.tensors]
    return tuple(sorted((*tensors, workspace), key=lambda t: ROLES.index(t.role)))


def workspace_bytes(unit: Unit) -> int:
    """Return the workspace that a call gets; an algorithm that needs more is not used."""
    dense = unit.dense.tensor("output")
    wanted = _PARTS * ITEM_BYTES["float32"] * (dense.elements if dense else 0)
    return min(_MOST_WORKSPACE, -(-wanted // 4096) * 4096)


def types_illegal(unit: Conv2d | Matmul) -> Text | None:
    """Why no library multiplies and stores the unit's types; None where they do."""
    dtype, output = unit.dtype, unit.epilogue.output or unit.dtype
    if dtype != "float32" and unit.math != "tensor":
        return msg("no library call multiplies {dtype} as {math}", dtype=dtype, math=unit.math)
    if output not in _OUTPUTS[dtype]:
        return msg(
            "the library does not store {dtype} products as {output}", dtype=dtype, output=output
        )
    return None
