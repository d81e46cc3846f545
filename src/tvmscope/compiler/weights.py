"""An artifact's large constants, in a file beside the library that a process holds once.

Inside the library they would be there four times while it is loaded: as a part of the mapped file,
as two copies of the serialised program, and as tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from tvmscope.core.artifact import StoredTensor

Array = np.ndarray[Any, Any]
ALIGNMENT = 64
"""A cache line, and what TVM asks of memory that it did not allocate."""


def save(arrays: Sequence[Array], file: Path) -> tuple[StoredTensor, ...]:
    """Write the arrays one behind the other; returns where each is."""
    stored = []
    with file.open("wb") as stream:
        for array in arrays:
            stream.write(bytes(-stream.tell() % ALIGNMENT))
            stored.append(StoredTensor(array.shape, str(array.dtype), stream.tell()))
            stream.write(memoryview(np.ascontiguousarray(array)).cast("B"))
    return tuple(stored)


def load(stored: Sequence[StoredTensor], file: Path) -> list[Array]:
    """Read all arrays into one aligned piece of memory.

    It is read, not mapped: numpy asks for huge pages, which a file does not get.
    """
    size = file.stat().st_size
    memory = np.empty(size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    whole = memory[start : start + size]
    with file.open("rb") as stream:
        stream.readinto(whole.data)
    return [_view(whole, tensor) for tensor in stored]


def _view(whole: Array, tensor: StoredTensor) -> Array:
    dtype = np.dtype(tensor.dtype)
    end = tensor.offset + prod(tensor.shape) * dtype.itemsize
    return whole[tensor.offset : end].view(dtype).reshape(tensor.shape)
