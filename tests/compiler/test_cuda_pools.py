"""Pools inside the kernels of the convolutions before them: which ones, and that they are right.

No GPU is needed: the passes run for one, and each unit is computed by its numpy reference.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest
import torch
import torch.nn.functional as nnf
import tvm
from tvm import relax

from support import placed_units
from tvmscope.compiler import targets
from tvmscope.compiler.units.choose import Chooser
from tvmscope.core.options import CompileOptions
from tvmscope.core.precision import FLOAT16, FLOAT32, Precision
from tvmscope.cuda.units import Conv2d, Epilogue, Pool, Pooled

pytest.importorskip("triton", reason="CUDA kernels are generated where Triton is installed")

Array = np.ndarray[Any, Any]
Emit = Callable[[Any], Any]
RNG = np.random.default_rng(0)
ALWAYS = {"pools": True}
GPU = targets.resolve("cuda:sm_90")
op = relax.op.nn


def random(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


X, W, B, Z = random(2, 16, 9, 7), random(24, 16, 3, 3), random(1, 24, 1, 1), random(24, 16, 1, 1)


def convolved(emit: Emit, x: Any) -> Any:
    y = emit(op.conv2d(x, relax.const(W), padding=(1, 1)))
    return emit(op.relu(emit(relax.op.add(y, relax.const(B)))))


def wanted() -> torch.Tensor:
    y = nnf.conv2d(torch.from_numpy(X), torch.from_numpy(W), padding=1)
    return nnf.relu(y + torch.from_numpy(B))


def placed(
    build: Callable[[Emit, Any], Any],
    expected: torch.Tensor,
    precision: Precision = FLOAT16,
    overrides: dict[str, bool] | None = None,
) -> list[Any]:
    """The units of a graph, whose result is compared with PyTorch's."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(X.shape, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(build(builder.emit, x))
        builder.emit_func_output(out)
    module: tvm.IRModule = builder.get()
    given = ALWAYS if overrides is None else overrides
    options = CompileOptions(precision=precision, overrides=given)
    made = placed_units.lowered(module, options).module
    (found,) = placed_units.run(made, X)
    error = np.abs(found - expected.numpy()).max() / np.abs(expected.numpy()).max()
    assert found.shape == tuple(expected.shape)
    assert error < placed_units.TOLERANCE[precision]
    return list(placed_units.placed(made))


@pytest.mark.parametrize("precision", [FLOAT16, FLOAT32], ids=str)
@pytest.mark.parametrize("form", ["max", "mean"])
def test_windows_side_by_side_are_pooled_by_the_convolution(
    form: str, precision: Precision
) -> None:
    def build(emit: Emit, x: Any) -> Any:
        pool = op.max_pool2d if form == "max" else op.avg_pool2d
        return pool(convolved(emit, x), (2, 3), (2, 3))

    pool = nnf.max_pool2d if form == "max" else nnf.avg_pool2d
    (unit,) = placed(build, pool(wanted(), (2, 3), (2, 3)), precision)
    assert unit.pooled == Pooled(form=form, r=2, s=3)  # type: ignore[arg-type]  # parametrised
    assert unit.epilogue == Epilogue(bias=True, activation="relu")


@pytest.mark.parametrize("precision", [FLOAT16, FLOAT32], ids=str)
@pytest.mark.parametrize("written", ["mean", "adaptive"])
def test_the_mean_of_an_image_is_computed_by_the_convolution(
    written: str, precision: Precision
) -> None:
    def build(emit: Emit, x: Any) -> Any:
        y, z = convolved(emit, x), emit(op.conv2d(x, relax.const(Z)))
        y = emit(relax.op.add(y, z))
        if written == "mean":
            return relax.op.mean(y, [2, 3])
        return op.adaptive_avg_pool2d(y, (1, 1))

    y = wanted() + nnf.conv2d(torch.from_numpy(X), torch.from_numpy(Z))
    y = y.mean((2, 3), keepdim=written != "mean")
    units = placed(build, y, precision)
    assert [type(u) for u in units] == [Conv2d, Conv2d]
    assert [u.pooled for u in units if u.pooled] == [Pooled(form="mean", r=9, s=7)]


def test_a_pooled_convolution_writes_its_part_of_a_concatenation() -> None:
    def build(emit: Emit, x: Any) -> Any:
        pooled = emit(op.max_pool2d(convolved(emit, x), 2, 2))
        other = emit(op.conv2d(x, relax.const(Z), strides=(2, 2)))
        other = emit(relax.op.strided_slice(other, [2, 3], [0, 0], [4, 3]))
        return relax.op.concat([pooled, other], 1)

    other = nnf.conv2d(torch.from_numpy(X), torch.from_numpy(Z), stride=2)[:, :, :4, :3]
    units = placed(build, torch.cat([nnf.max_pool2d(wanted(), 2), other], 1))
    assert [u.pooled for u in units if u.pooled] == [Pooled(form="max", r=2, s=2)]


OVERLAPPING = (lambda y: op.max_pool2d(y, 3, 2), lambda y: nnf.max_pool2d(y, 3, 2))
PADDED = (
    lambda y: op.max_pool2d(y, 2, 2, padding=(1, 1)),
    lambda y: nnf.max_pool2d(y, 2, 2, padding=1),
)
ROUNDED = (
    lambda y: op.max_pool2d(y, 2, 2, ceil_mode=True),
    lambda y: nnf.max_pool2d(y, 2, 2, ceil_mode=True),
)


@pytest.mark.parametrize(
    ("pool", "reference"), [OVERLAPPING, PADDED, ROUNDED], ids=["overlapping", "padded", "rounded"]
)
def test_other_windows_are_a_kernel_of_their_own(pool: Any, reference: Any) -> None:
    units = placed(lambda emit, x: pool(convolved(emit, x)), reference(wanted()))
    assert [type(u) for u in units] == [Conv2d, Pool]
    assert units[0].pooled is None


def test_a_pool_of_a_reshaped_result_is_a_kernel_of_its_own() -> None:
    """The convolution computes images of 9 x 7 pixels, the pool reads ones of 7 x 9."""

    def build(emit: Emit, x: Any) -> Any:
        y = emit(relax.op.reshape(emit(op.conv2d(x, relax.const(Z))), (2, 24, 7, 9)))
        z = emit(op.conv2d(emit(relax.op.reshape(x, (2, 16, 7, 9))), relax.const(Z)))
        return op.max_pool2d(emit(relax.op.add(y, emit(op.relu(z)))), 2, 2)

    x, z = torch.from_numpy(X), torch.from_numpy(Z)
    y = nnf.conv2d(x, z).reshape(2, 24, 7, 9) + nnf.relu(nnf.conv2d(x.reshape(2, 16, 7, 9), z))
    placed(build, nnf.max_pool2d(y, 2))


def test_a_convolution_that_others_read_is_stored() -> None:
    def build(emit: Emit, x: Any) -> Any:
        y = convolved(emit, x)
        small = emit(relax.op.mean(y, [2, 3], keepdims=True))
        return relax.op.multiply(y, emit(op.relu(small)))

    y = wanted()
    units = placed(build, y * nnf.relu(y.mean((2, 3), keepdim=True)))
    assert not any(u.pooled for u in units if isinstance(u, Conv2d))


def test_the_switch_leaves_pools_outside() -> None:
    units = placed(
        lambda emit, x: op.max_pool2d(convolved(emit, x), 2, 2),
        nnf.max_pool2d(wanted(), 2),
        overrides={"pools": False},
    )
    assert [type(u) for u in units] == [Conv2d, Pool]


def test_the_faster_form_is_chosen() -> None:
    plain = Conv2d(dtype="float16", n=8, h=64, w=64, c=64, oc=64, r=3, s=3, padding=(1, 1, 1, 1))
    small = Conv2d(
        **{f: getattr(plain, f) for f in ("dtype", "n", "h", "w", "c", "oc", "r", "s", "padding")},
        pooled=Pooled(form="max", r=2, s=2),
    )
    pool = Pool(dtype="float16", n=8, h=64, w=64, c=64, form="max", r=2, s=2, stride=(2, 2))
    chooser = Chooser(GPU, {}, recorded=False)
    assert chooser.prefers(small, (plain, pool))
    # most rows of such a tile are empty: 3 x 3 windows in 16 rows of a long sum
    heavy = Conv2d(dtype="float16", n=32, h=66, w=66, c=512, oc=512, r=3, s=3, padding=(1, 1, 1, 1))
    wasteful = Conv2d(
        **{f: getattr(heavy, f) for f in ("dtype", "n", "h", "w", "c", "oc", "r", "s", "padding")},
        pooled=Pooled(form="max", r=3, s=3),
    )
    pool = Pool(dtype="float16", n=32, h=66, w=66, c=512, form="max", r=3, s=3, stride=(3, 3))
    assert not chooser.prefers(wasteful, (heavy, pool))


def test_a_measured_call_counts_where_the_pooled_kernel_was_not_measured() -> None:
    """Its convolution alone is a call of cuDNN, which the cost model does not know."""
    plain = Conv2d(
        dtype="float16", n=32, h=7, w=7, c=512, oc=512, r=3, s=3, padding=(1, 1, 1, 1),
        epilogue=Epilogue(bias=True, activation="relu"),
    )  # fmt: skip
    pooled = replace(plain, pooled=Pooled(form="mean", r=7, s=7))
    pool = Pool(dtype="float16", n=32, h=7, w=7, c=512, form="mean", r=7, s=7, stride=(7, 7))
    assert not Chooser(GPU, {}, library=True).prefers(pooled, (plain, pool))


def test_bfloat16_decides_by_float16s_measurements() -> None:
    def units(dtype: Literal["float16", "bfloat16"]) -> tuple[Conv2d, tuple[Conv2d, Pool]]:
        plain = Conv2d(
            dtype=dtype, n=32, h=7, w=7, c=512, oc=512, r=3, s=3, padding=(1, 1, 1, 1),
            epilogue=Epilogue(bias=True, residual="before", activation="relu"),
        )  # fmt: skip
        pool = Pool(dtype=dtype, n=32, h=7, w=7, c=512, form="mean", r=7, s=7, stride=(7, 7))
        return replace(plain, pooled=Pooled(form="mean", r=7, s=7)), (plain, pool)

    chooser = Chooser(GPU, {})
    assert chooser.prefers(*units("float16")) == chooser.prefers(*units("bfloat16"))
