"""Units: keys that stay, JSON that comes back, shapes that fit."""

from __future__ import annotations

import json
from dataclasses import replace

import draws
import numpy as np
import pytest

from tvmscope.cuda.config import Config
from tvmscope.cuda.packing import pack_weight
from tvmscope.cuda.reference import reference
from tvmscope.cuda.rewrites import as_patches, with_channels
from tvmscope.cuda.units import (
    Attention,
    Conv2d,
    Epilogue,
    Matmul,
    Matrix,
    Unit,
    from_json,
)
from tvmscope.errors import SchemaError, UsageError

CONV = Conv2d(
    dtype="float16", n=1, h=56, w=56, c=64, oc=64, r=3, s=3, padding=(1, 1, 1, 1),
    epilogue=Epilogue(bias=True, activation="relu"),
)  # fmt: skip


def drawn() -> list[Unit]:
    makers = (
        draws.conv2d, draws.matmul, draws.matvec, draws.depthwise, draws.pool, draws.attention,
        draws.norm, draws.softmax, draws.group_norm,
    )  # fmt: skip
    return [make(seed)[0] for make in makers for seed in range(10)]


def test_units_come_back_from_json() -> None:
    for unit in drawn():
        again = from_json(json.loads(json.dumps(unit.to_json())))
        assert again == unit
        assert again.key == unit.key
        assert hash(again) == hash(unit)


def test_key_is_the_same_in_every_version() -> None:
    assert CONV.key == "conv2d-cfe50e5e1da57d16"
    assert replace(CONV, groups=1, dilation=(1, 1)).key == CONV.key  # defaults do not count
    assert replace(CONV, c=128).key != CONV.key


def test_unknown_units_and_fields_are_refused() -> None:
    with pytest.raises(SchemaError, match="unknown unit 'conv9d'"):
        from_json({"kind": "conv9d"})
    with pytest.raises(SchemaError, match="unknown fields winograd"):
        from_json({**CONV.to_json(), "winograd": True})


@pytest.mark.parametrize(
    "changes, reason",
    [
        ({"groups": 3}, "no 3 equal groups"),
        ({"r": 99}, "does not fit"),
        ({"math": "tf32"}, "no way to multiply float16"),
        ({"n": 100_000}, "elements"),
    ],
)
def test_impossible_convolutions_are_refused(changes: dict[str, object], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        replace(CONV, **changes)  # type: ignore[arg-type]


def test_impossible_epilogues_and_matrices_are_refused() -> None:
    with pytest.raises(UsageError, match="takes 2 parameters, got 0"):
        Epilogue(activation="clip")
    with pytest.raises(UsageError, match="no axis"):
        Matmul(dtype="float16", m=4, n=4, k=4, a=Matrix(row=8, column=2))
    with pytest.raises(UsageError, match="no strides of its own"):
        Matmul(dtype="float16", m=4, n=4, k=4, b=Matrix(row=4, column=1))


def test_labels_say_what_is_computed() -> None:
    assert CONV.label == "3x3 64->64 @56x56 b1 float16 + bias + relu"
    strict = Attention(
        dtype="float32", math="ieee", batch=1, heads=12, queries=5, keys=9, dim=64, causal=True
    )
    assert strict.label == "attention 1x12 5x9x64 ieee causal"


def test_padding_counts_where_a_window_reaches_outside() -> None:
    assert CONV.padded
    assert not replace(CONV, padding=(0, 0, 0, 0)).padded
    # padding behind the image that no window reaches
    assert not replace(CONV, r=2, s=2, stride=(2, 2), padding=(0, 0, 1, 1)).padded


@pytest.mark.parametrize("layout", ["kn", "nk"])
def test_packed_weights_multiply_to_the_same(layout: str) -> None:
    unit = replace(CONV, h=1, w=1, c=3, oc=5, r=1, s=1, padding=(0, 0, 0, 0), epilogue=Epilogue())
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((1, 1, 1, 3)), rng.standard_normal((5, 1, 1, 3))
    config = Config(template="conv2d", m=16, n=16, k=16, layout=layout)  # type: ignore[arg-type]
    packed = pack_weight(unit, config, w)
    by_hand = x.reshape(1, 3) @ (packed if layout == "kn" else packed.T)
    assert np.allclose(by_hand, reference(unit, {"input": x, "weight": w}).reshape(1, 5))


def test_patches_are_the_same_convolution() -> None:
    unit = Conv2d(dtype="float32", math="ieee", n=2, h=8, w=12, c=3, oc=5, r=4, s=4, stride=(4, 4))
    rewritten = as_patches(unit)
    assert rewritten is not None
    assert (rewritten.w, rewritten.c, rewritten.s, rewritten.q) == (3, 12, 1, 3)
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((2, 8, 12, 3)), rng.standard_normal((5, 4, 4, 3))
    plain = reference(unit, {"input": x, "weight": w})
    rows = {"input": x.reshape(2, 8, 3, 12), "weight": w.reshape(5, 4, 1, 12)}
    assert np.allclose(reference(rewritten, rows), plain)
    assert as_patches(replace(unit, stride=(4, 2))) is None


def test_channels_are_only_added() -> None:
    assert with_channels(replace(CONV, c=3), 8).c == 8
    with pytest.raises(UsageError, match="cannot have 3 channels"):
        with_channels(CONV, 3)
