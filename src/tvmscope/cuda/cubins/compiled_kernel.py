"""A compiled kernel: its cubin and how to launch it, apart from the compiler that needs Triton."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from tvmscope.cuda.config import Config
from tvmscope.cuda.units import Tensor
from tvmscope.storage.codec import decode, encode


@dataclass(frozen=True, kw_only=True)
class CompiledKernel:
    """A cubin and how to launch it: pointers in the order of `arguments`, then `hidden_pointers`
    more, all null. Scratch memory is an argument, aligned to 128 bytes."""

    unit_key: str
    config: Config
    arch: str
    name: str
    cubin: bytes = field(repr=False)
    grid: tuple[int, int, int]
    threads: int
    shared_bytes: int
    registers: int
    local_bytes: int
    arguments: tuple[Tensor, ...]
    hidden_pointers: int
    triton: str
    matrix: str | None = None
    """The matrix instruction in its PTX, such as `wgmma m64n32k16`; None if there is none."""

    def to_json(self) -> dict[str, Any]:
        """All but the cubin."""
        names = (f.name for f in fields(self) if f.name != "cubin")
        return {name: encode(getattr(self, name)) for name in names}

    @staticmethod
    def from_json(data: dict[str, Any], cubin: bytes) -> CompiledKernel:
        """Read the kernel from a JSON object and its cubin."""
        return decode(CompiledKernel, {**data, "cubin": cubin})
