"""The templates' arithmetic, interpreted on the CPU, against float64 in numpy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import draws
import numpy as np
import pytest
from interpreted import draw

from tvmscope.cuda.config import Config
from tvmscope.cuda.reference import norm_sum, output_values, reference
from tvmscope.cuda.units import (
    Activation,
    Attention,
    Conv2d,
    Epilogue,
    GroupNorm,
    Matmul,
    Norm,
    Pool,
    Pooled,
    Softmax,
    Unit,
    View,
)
from tvmscope.measure.remote import Remote
from tvmscope.measure.worker import Worker

RUN: Remote[..., Any] = Remote("interpreted", "run")

# a float16 output has 11 bits; sums and everything else are float32
TOLERANCE = {"float16": 1e-3, "float32": 2e-6}


def check(interpreter: Worker, unit: Unit, config: Config, times: int = 1) -> None:
    arrays = draw(unit)
    got = interpreter.call(RUN, unit, config, arrays, times)
    wanted = reference(unit, arrays)
    values = output_values(unit, got["output"]).reshape(wanted.shape)
    largest = np.abs(wanted).max()
    error = np.abs(values - wanted).max() / max(largest, 1e-3)
    (output,) = (t.dtype for t in unit.tensors if t.role == "output")
    tolerance = max(TOLERANCE[unit.dtype], TOLERANCE[output])
    assert error <= tolerance, f"{unit.label} by {config.label}: error {error:.1e}"
    untouched = np.isnan(got["output"]).sum()
    assert untouched == got["output"].size - wanted.size, "wrote outside its part of the output"
    if isinstance(unit, Norm) and unit.keep_sum:
        total = norm_sum(unit, arrays)
        assert np.abs(got["sum"] - total).max() / np.abs(total).max() <= TOLERANCE[unit.dtype]


@pytest.mark.parametrize("seed", range(16))
def test_convolutions_of_odd_shapes(interpreter: Worker, seed: int) -> None:
    unit, config = draws.conv2d(seed)
    check(interpreter, unit, config, times=2 if config.split > 1 else 1)


@pytest.mark.parametrize("activation", draws.ACTIVATIONS)
def test_an_activation_is_exact_for_small_and_large_values(
    interpreter: Worker, activation: Activation
) -> None:
    """A model's result may be all small: there, a difference of large numbers has no digits."""
    parameters = draws.PARAMETERS.get(activation, ())
    epilogue = Epilogue(activation=activation, parameters=parameters)
    unit = Matmul(dtype="float32", math="ieee", m=1, n=96, k=1, epilogue=epilogue)
    size = np.logspace(-6, 2, 48)
    given = np.concatenate([-size, size]).astype(np.float32)
    arrays = {"input": np.ones((1, 1), np.float32), "weight": given.reshape(1, 96)}
    config = Config(template="matmul", m=16, n=32, k=16, stages=2, warps=4, layout="kn")
    got = interpreter.call(RUN, unit, config, arrays, 1)["output"].reshape(-1)
    wanted = reference(unit, arrays).reshape(-1)
    # 1 + erf(-4) cancels, in PyTorch too
    least = 1e-2 * np.abs(given) if activation.startswith("gelu") else 1e-30
    error = np.abs(got - wanted) / np.maximum(np.abs(wanted), least)
    assert error[np.abs(wanted) > 1e-30].max() < 3e-5


@pytest.mark.parametrize("seed", range(10))
def test_convolutions_of_gated_channels(interpreter: Worker, seed: int) -> None:
    unit, config = draws.gated(seed)
    check(interpreter, unit, config, times=2 if config.split > 1 else 1)


@pytest.mark.parametrize("seed", range(16))
def test_convolutions_with_a_pool_behind_them(interpreter: Worker, seed: int) -> None:
    unit, config = draws.pooled(seed)
    check(interpreter, unit, config, times=2 if config.split > 1 else 1)


@pytest.mark.parametrize("form", ["max", "mean"])
def test_a_pool_behind_a_convolution_keeps_nan(interpreter: Worker, form: Any) -> None:
    unit = Conv2d(
        dtype="float16", n=1, h=4, w=4, c=8, oc=8, r=1, s=1, pooled=Pooled(form=form, r=2, s=2)
    )
    arrays = draw(unit)
    arrays["input"][0, 1, 0] = np.nan
    config = Config(template="conv2d", m=16, n=16, k=16)
    got = interpreter.call(RUN, unit, config, arrays)["output"].reshape(2, 2, 8)
    assert np.isnan(got[0, 0]).all()
    assert not np.isnan(got[1]).any()


@pytest.mark.parametrize("seed", range(14))
def test_matrix_products_of_odd_shapes(interpreter: Worker, seed: int) -> None:
    unit, config = draws.matmul(seed)
    check(interpreter, unit, config, times=2 if config.split > 1 else 1)


@pytest.mark.parametrize("make", [draws.conv2d, draws.matmul, draws.attention])
def test_halves_multiplied_beside_the_tensor_cores(interpreter: Worker, make: Any) -> None:
    drawn = (make(seed) for seed in range(20))
    unit, config = next((u, c) for u, c in drawn if u.dtype == "float16")
    check(interpreter, replace(unit, math="ieee"), config)


@pytest.mark.parametrize("seed", range(5))
def test_products_of_few_rows(interpreter: Worker, seed: int) -> None:
    check(interpreter, *draws.matvec(seed), times=2)


@pytest.mark.parametrize(("dtype", "error"), [("float16", 6.5e-6), ("float32", 5e-7)])
def test_gelu_is_exact_to_the_last_digit_of_its_type(
    interpreter: Worker, dtype: Any, error: float
) -> None:
    values = np.linspace(-9, 9, 1024).astype(dtype).astype(np.float32).reshape(64, 16)
    gelu = Epilogue(activation="gelu")
    math = "tensor" if dtype == "float16" else "ieee"
    unit = Matmul(dtype=dtype, m=64, n=16, k=16, math=math, epilogue=gelu)
    arrays = {"input": values, "weight": np.eye(16, dtype=np.float32)}
    config = Config(template="matmul", m=32, n=16, k=16)
    got = interpreter.call(RUN, unit, config, arrays)["output"].reshape(values.shape)
    wanted = reference(unit, arrays).reshape(values.shape)
    rounding = np.abs(wanted) * np.finfo(dtype).eps
    assert (np.abs(got - wanted) <= error + rounding).all()


@pytest.mark.parametrize("seed", range(5))
def test_persistent_products(interpreter: Worker, seed: int) -> None:
    check(interpreter, *draws.persistent(seed))


@pytest.mark.parametrize("seed", range(8))
def test_depthwise_convolutions_of_odd_shapes(interpreter: Worker, seed: int) -> None:
    check(interpreter, *draws.depthwise(seed))


@pytest.mark.parametrize("seed", range(8))
def test_pools_of_odd_shapes(interpreter: Worker, seed: int) -> None:
    check(interpreter, *draws.pool(seed))


@pytest.mark.parametrize("seed", range(8))
def test_attention_of_odd_shapes(interpreter: Worker, seed: int) -> None:
    check(interpreter, *draws.attention(seed))


@pytest.mark.parametrize("seed", range(6))
def test_norms_of_odd_shapes(interpreter: Worker, seed: int) -> None:
    check(interpreter, *draws.norm(seed))


@pytest.mark.parametrize("seed", range(6))
def test_softmax_of_odd_shapes(interpreter: Worker, seed: int) -> None:
    check(interpreter, *draws.softmax(seed))


def test_a_wide_norm_with_a_narrow_result(interpreter: Worker) -> None:
    unit = Norm(dtype="float32", rows=3, columns=33, residual=True, keep_sum=True, output="float16")
    check(interpreter, unit, Config(template="norm", m=1, n=64))


@pytest.mark.parametrize("seed", range(16))
def test_group_norms_of_odd_shapes(interpreter: Worker, seed: int) -> None:
    check(interpreter, *draws.group_norm(seed))


@pytest.mark.parametrize("m", [16, 64])
def test_a_group_norm_keeps_its_digits_beside_a_large_mean(interpreter: Worker, m: int) -> None:
    unit = GroupNorm(dtype="float32", n=1, pixels=40, c=6, groups=2)
    arrays = draw(unit)
    arrays["input"] = arrays["input"] + np.float32(4096)
    got = interpreter.call(RUN, unit, Config(template="group_norm", m=m, n=8), arrays)["output"]
    wanted = reference(unit, arrays)
    assert np.abs(got.reshape(wanted.shape) - wanted).max() < 1e-3 * np.abs(wanted).max()


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("n", [16, 64])
def test_softmax_of_whole_and_of_long_rows(interpreter: Worker, n: int, log: bool) -> None:
    unit = Softmax(dtype="float16", rows=5, columns=33, scale=0.5, log=log, output="float32")
    check(interpreter, unit, Config(template="softmax", m=4, n=n))


@pytest.mark.parametrize("form", ["max", "mean"])
def test_pool_over_the_whole_image(interpreter: Worker, form: str) -> None:
    unit = Pool(dtype="float16", n=2, h=5, w=7, c=12, form=form, r=5, s=7)  # type: ignore[arg-type]
    check(interpreter, unit, Config(template="mean", m=16, n=8))


def test_wide_pool_window_is_a_loop(interpreter: Worker) -> None:
    unit = Pool(dtype="float32", n=1, h=8, w=8, c=5, form="max", r=7, s=7, padding=(3, 3, 3, 3))
    check(interpreter, unit, Config(template="pool", m=64, n=8, k=8))


def test_taps_of_whole_steps_and_the_output_as_a_slice(interpreter: Worker) -> None:
    """A step of the main loop lies inside one tap: another way to address the input."""
    unit = Conv2d(
        dtype="float16", n=2, h=6, w=5, c=32, oc=18, r=3, s=3, padding=(1, 1, 1, 1),
        epilogue=Epilogue(bias=True, activation="relu"), output=View(pitch=40, offset=8),
    )  # fmt: skip
    check(interpreter, unit, Config(template="conv2d", m=16, n=16, k=16, split=4), times=3)


def test_query_without_a_key_gives_zeros(interpreter: Worker) -> None:
    unit = Attention(
        dtype="float32", math="ieee", batch=1, heads=1, queries=20, keys=4, dim=16, causal=True
    )
    arrays = draw(unit)
    got = interpreter.call(RUN, unit, Config(template="attention", m=16, n=16), arrays)
    assert not got["output"].reshape(20, 16)[:16].any()


def test_nan_in_the_input_is_not_hidden_by_an_activation(interpreter: Worker) -> None:
    unit = Matmul(
        dtype="float32", math="ieee", m=3, n=4, k=16, epilogue=Epilogue(activation="relu")
    )
    arrays = draw(unit)
    arrays["input"][:16] = np.nan  # the first row
    config = Config(template="matmul", m=16, n=16, k=16)
    got = interpreter.call(RUN, unit, config, arrays)["output"].reshape(3, 4)
    assert np.isnan(got[0]).all()
    assert not np.isnan(got[1:]).any()
