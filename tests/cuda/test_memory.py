"""Device memory through a stand-in for the driver: what is requested of it, in which order."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from tvmscope.cuda import memory
from tvmscope.errors import RunError

GIB = 1 << 30


class Driver:
    """Has some free memory, and perhaps less than it says."""

    def __init__(self, free: int, real: int | None = None) -> None:
        self.free, self.left = free, free if real is None else real
        self.filled: list[tuple[int, int]] = []
        self.held: dict[int, int] = {}

    def __call__(self, name: str, *args: Any) -> None:
        if name == "cuMemGetInfo_v2":
            args[0]._obj.value = self.free
        elif name == "cuMemAlloc_v2":
            size = args[1].value
            if size > self.left:
                raise RunError("out of memory")
            self.left -= size
            args[0]._obj.value = 4096 * (len(self.held) + 1)
            self.held[args[0]._obj.value] = size
        elif name == "cuMemsetD8_v2":
            self.filled.append((ctypes.c_ubyte(args[1].value).value, args[2].value))
        elif name == "cuMemFree_v2":
            self.left += self.held.pop(args[0].value)


@pytest.mark.parametrize(("free", "spoiled"), [(140, 16), (10, 5), (1, 0)])
def test_free_memory_is_filled_with_nan_and_given_back(
    free: int, spoiled: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = Driver(free * GIB)
    monkeypatch.setattr(memory, "call", driver)
    assert memory.spoil_free() == spoiled * GIB
    assert driver.filled == [(0xFF, GIB)] * spoiled
    assert driver.left == free * GIB


def test_memory_that_another_process_took_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver(40 * GIB, real=3 * GIB)
    monkeypatch.setattr(memory, "call", driver)
    assert memory.spoil_free() == 3 * GIB
    assert driver.left == 3 * GIB
