"""Loads a generated CUDA kernel, or its unit's reference, alone in a worker process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tvmscope.cuda.cubins import kernel_file
from tvmscope.cuda.cubins.compiled_kernel import CompiledKernel
from tvmscope.cuda.kernel_bench import KernelBench
from tvmscope.cuda.library.call import LibraryCall
from tvmscope.cuda.packing import pack_weight
from tvmscope.cuda.reference import output_values, reference
from tvmscope.cuda.units import Unit

if TYPE_CHECKING:
    from pathlib import Path

Array = np.ndarray[Any, Any]


def load_unit(library: Path, filled: list[Array]) -> UnitKernel | UnitReference:
    """Load a unit's kernel, or, if the file has none, its reference."""
    unit, kernel = kernel_file.read(library)
    return UnitReference(unit, filled) if kernel is None else UnitKernel(unit, kernel, filled)


class UnitReference:
    """Computes the unit in numpy; half precision is widened."""

    def __init__(self, unit: Unit, filled: list[Array]) -> None:
        self.settings: dict[str, str] = {}
        self._unit = unit
        self._filled = dict(zip(kernel_file.roles(unit), filled, strict=True))

    def run(self) -> None:
        self.outputs()

    def outputs(self) -> dict[str, Array]:
        written = self._filled["output"].copy()
        values = output_values(self._unit, written)
        values[...] = reference(self._unit, self._filled).reshape(values.shape)
        return {str(len(self._filled) - 1): written}


class UnitKernel:
    """A compiled kernel or a library's call, timed in a CUDA graph: see `KernelBench`."""

    def __init__(
        self, unit: Unit, kernel: CompiledKernel | LibraryCall, filled: list[Array]
    ) -> None:
        self.settings: dict[str, str] = {}
        self._last = str(len(filled) - 1)
        tensors = dict(zip(kernel_file.roles(unit), filled, strict=True))
        if "weight" in tensors:
            tensors["weight"] = pack_weight(unit, kernel.config, tensors["weight"])
        self._bench = KernelBench(unit, kernel, tensors)

    def run(self) -> None:
        self._bench.output()

    def time(self, n: int, loops: int, cold: bool) -> list[float]:
        """Return `n` values of `loops` launches or more; weights never come from a cache."""
        return self._bench.time(n, loops)

    def outputs(self) -> dict[str, Array]:
        return {self._last: self._bench.output()}
