"""Stores an artifact's large constants in a separate file, so that a process has them only once.

Inside the library they would be in memory four times during loading: as a part of the mapped file,
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
"""A cache line, which is also the alignment that TVM requires of foreign memory."""


def save(arrays: Sequence[Array], file: Path) -> tuple[StoredTensor, ...]:
    """Write the arrays one after the other; return the position of each."""
    stored = []
    with file.open("wb") as stream:
        for array in arrays:
            stream.write(bytes(-stream.tell() % ALIGNMENT))
            stored.append(StoredTensor(array.shape, str(array.dtype), stream.tell()))
            stream.write(np.ascontiguousarray(array).data.cast("B"))
    return tuple(stored)


def load(stored: Sequence[StoredTensor], file: Path) -> list[Array]:
    """Read all arrays into one block of memory.

    It is read, not mapped: a mapped file does not get huge pages.
    """
    whole = _memory(file.stat().st_size)
    with file.open("rb") as stream:
        stream.readinto(whole.data)
    return [_view(whole, t.offset, t.shape, np.dtype(t.dtype)) for t in stored]


def copies(array: Array, count: int) -> list[Array]:
    """Return copies of an array with the alignment of the arrays of `load`."""
    step = array.nbytes + -array.nbytes % ALIGNMENT
    whole = _memory(count * step)
    found = [_view(whole, i * step, array.shape, array.dtype) for i in range(count)]
    for copy in found:
        copy[...] = array
    return found


def _memory(size: int) -> Array:
    """Return bytes at an aligned address; numpy requests huge pages for large blocks."""
    memory = np.empty(size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size]


def _view(whole: Array, offset: int, shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
    end = offset + prod(shape) * dtype.itemsize
    return whole[offset:end].view(dtype).reshape(shape)
