"""Dimensions that vary: which sizes get kernels, and what becomes of all others."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tvmscope.core.prepared.dynamic import Dynamic, parse_dynamic
from tvmscope.errors import UsageError
from tvmscope.runtime.dynamic import LoadedDynamic


def test_powers_of_two_and_both_ends_get_kernels() -> None:
    assert parse_dynamic("x:0=3..20").sizes == (3, 4, 8, 16, 20)
    assert parse_dynamic("x:0=1..32@8,1").sizes == (1, 8, 32)


@pytest.mark.parametrize("text", ["x=1..2", "x:0", "x:0=1", "x:0=4..2", "x:0=1..8@9", ":0=1..2"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"1\.\.32|sizes go up"):
        parse_dynamic(text)


def test_inputs_of_the_same_size_vary_together() -> None:
    wanted = parse_dynamic("ids:1=8..16").joined({"ids": (1, 8), "mask": (1, 8), "scale": (1,)})
    assert wanted.places == (("ids", 1), ("mask", 1))
    assert wanted.at({"ids": (1, 8), "mask": (1, 8)}, 9) == {"ids": (1, 9), "mask": (1, 9)}


class Doubles:
    """A part that accepts one size; it remembers nothing."""

    def __init__(self, size: int, calls: list[int]) -> None:
        self.size, self.calls = size, calls
        self.artifact = SimpleNamespace(inputs=(SimpleNamespace(name="x"),))

    def __call__(self, *, x: Any) -> dict[str, Any]:
        assert x.shape == (self.size, 2)
        self.calls.append(self.size)
        return {"y": x * 2, "count": np.float32(7)}


def loaded(text: str, rest: Any) -> tuple[LoadedDynamic, list[int]]:
    wanted, calls = parse_dynamic(text), list[int]()
    plan = Dynamic(
        range=wanted, base=wanted.sizes[0], rest=rest, output_axes={"y": 0, "count": None}
    )
    parts: Any = {size: Doubles(size, calls) for size in wanted.sizes}
    return LoadedDynamic(plan, parts), calls


@pytest.mark.parametrize(
    ("rest", "size", "parts"),
    [("split", 7, [4, 1, 1, 1]), ("split", 4, [4]), ("pad", 5, [8]), ("pad", 1, [1])],
)
def test_a_size_is_computed_by_the_kernels_there_are(
    rest: str, size: int, parts: list[int]
) -> None:
    model, calls = loaded("x:0=1..8@1,4", rest)
    x = np.arange(2.0 * size).reshape(size, 2)
    found = model(x)
    np.testing.assert_array_equal(found["y"], x * 2)
    assert float(found["count"]) == 7
    assert calls == parts


def test_a_part_below_the_smallest_size_is_padded() -> None:
    model, calls = loaded("x:0=2..8@4", "split")
    x = np.arange(12.0).reshape(6, 2)
    np.testing.assert_array_equal(model(x=x)["y"], x * 2)
    assert calls == [4, 4]


def test_a_size_outside_of_the_range_is_refused() -> None:
    model, _ = loaded("x:0=1..8", "split")
    with pytest.raises(UsageError, match=r"from 1 to 8, got 9"):
        model(np.zeros((9, 2)))


def test_a_model_that_cannot_be_cut_takes_its_sizes_only() -> None:
    model, _ = loaded("x:0=1..8@4", "none")
    with pytest.raises(UsageError, match=r"size 3 has no kernels.*4, 8"):
        model(np.zeros((3, 2)))
