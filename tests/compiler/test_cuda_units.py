"""Generated CUDA kernels in a graph: what belongs to one, what it reads, and that it is right.

No GPU is needed: the passes run for one, and each unit is computed by its numpy reference.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as nnf
import tvm
from tvm import relax, tirx

from support import placed_units
from tvmscope.compiler.units import emit
from tvmscope.core.options import CompileOptions
from tvmscope.core.precision import FLOAT16, FLOAT32, TF32, Precision
from tvmscope.cuda.units import Attention, Conv2d, Matmul, Norm, Pool

pytest.importorskip("triton", reason="CUDA kernels are generated where Triton is installed")

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(0)
Emit = Callable[[Any], Any]
PRECISIONS = pytest.mark.parametrize("precision", [FLOAT32, FLOAT16], ids=str)


def random(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def module(build: Callable[..., Any], *inputs: Array) -> tvm.IRModule:
    builder = relax.BlockBuilder()
    params = [
        relax.Var(f"x{i}", relax.TensorType(x.shape, "float32")) for i, x in enumerate(inputs)
    ]
    with builder.function("main", params):
        with builder.dataflow():
            out = builder.emit_output(build(builder.emit, *params))
        builder.emit_func_output(out)
    return builder.get()


def check(
    build: Callable[..., Any], wanted: torch.Tensor, precision: Precision, *inputs: Array
) -> list[Any]:
    """The units of a graph, whose result is compared with PyTorch's."""
    options = CompileOptions(precision=precision)
    made = placed_units.lowered(module(build, *inputs), options).module
    units = placed_units.placed(made)
    (found,) = placed_units.run(made, *inputs)
    error = np.abs(found - wanted.numpy()).max() / np.abs(wanted.numpy()).max()
    assert error < placed_units.TOLERANCE[precision]
    return units


def t(array: Array) -> torch.Tensor:
    return torch.from_numpy(array)


@PRECISIONS
def test_a_residual_block_is_one_kernel_per_convolution(precision: Precision) -> None:
    x, w1, w2 = random(1, 16, 9, 7), random(16, 16, 3, 3), random(16, 16, 1, 1)
    b1, b2, stem = random(1, 16, 1, 1), random(1, 16, 1, 1), random(16, 16, 1, 1)

    def build(emit: Any, given: Any) -> Any:
        v = emit(relax.op.nn.conv2d(given, relax.const(stem)))
        first = emit(relax.op.nn.conv2d(v, relax.const(w1), padding=(1, 1)))
        first = emit(relax.op.nn.relu(emit(relax.op.add(first, relax.const(b1)))))
        second = emit(
            relax.op.add(emit(relax.op.nn.conv2d(first, relax.const(w2))), relax.const(b2))
        )
        return relax.op.nn.relu(emit(relax.op.add(second, v)))

    v = nnf.conv2d(t(x), t(stem))
    y = nnf.relu(nnf.conv2d(v, t(w1), padding=1) + t(b1))
    y = nnf.relu(nnf.conv2d(y, t(w2)) + t(b2) + v)
    units = check(build, y, precision, x)
    assert [type(u) for u in units] == [Conv2d] * 3
    assert sorted(u.epilogue.activation for u in units) == ["none", "relu", "relu"]
    assert sorted(u.epilogue.residual for u in units) == ["before", "none", "none"]


@pytest.mark.parametrize("groups", [1, 4, 12])
def test_convolutions_of_odd_shapes(groups: int) -> None:
    x, w = random(2, 12, 11, 8), random(24, 12 // groups, 3, 2)

    def build(emit: Any, v: Any) -> Any:
        y = relax.op.nn.conv2d(
            v, relax.const(w), strides=(2, 1), padding=(1, 0, 2, 1), dilation=(1, 2), groups=groups
        )
        y = emit(relax.op.maximum(emit(y), relax.const(0.0, "float32")))
        return relax.op.minimum(y, relax.const(6.0, "float32"))

    padded = nnf.pad(t(x), (0, 1, 1, 2))
    y = nnf.conv2d(padded, t(w), stride=(2, 1), dilation=(1, 2), groups=groups)
    (unit,) = check(build, nnf.relu6(y), FLOAT32, x)
    assert unit.epilogue.activation == "relu6"


@pytest.mark.parametrize(("precision", "conv"), [(FLOAT32, "tf32x3"), (TF32, "tf32")])
def test_tf32_is_for_convolutions_only(precision: Precision, conv: str) -> None:
    x, w, dense = random(1, 8, 6, 6), random(16, 8, 1, 1), random(16, 24)

    def build(emit: Any, v: Any) -> Any:
        y = emit(relax.op.mean(emit(relax.op.nn.conv2d(v, relax.const(w))), [2, 3]))
        return relax.op.matmul(y, relax.const(dense))

    wanted = nnf.conv2d(t(x), t(w)).mean((2, 3)) @ t(dense)
    units = check(build, wanted, precision, x)
    assert [u.math for u in units if isinstance(u, Conv2d)] == [conv]
    assert "tf32" not in [u.math for u in units if isinstance(u, Matmul)]


@pytest.mark.parametrize(
    ("precision", "channels", "loaded"),
    [
        (FLOAT16, 1, 2), (FLOAT16, 2, 2), (FLOAT16, 3, 4), (FLOAT16, 5, 8),
        (FLOAT32, 1, 2), (FLOAT32, 3, 4), (FLOAT32, 5, 8),
    ],
    ids=str,
)  # fmt: skip
def test_few_channels_are_padded_to_one_load(
    precision: Precision, channels: int, loaded: int
) -> None:
    x, stem = random(1, channels, 8, 8), random(8, channels, 3, 3)
    (unit,) = check(
        lambda emit, v: relax.op.nn.conv2d(v, relax.const(stem), padding=(1, 1)),
        nnf.conv2d(t(x), t(stem), padding=1), precision, x,
    )  # fmt: skip
    assert unit.c == loaded


def _number(value: float) -> Any:
    return relax.const(value, "float32")


def _hard_swish(emit: Emit, y: Any) -> Any:
    shifted = emit(relax.op.clip(emit(relax.op.add(y, _number(3.0))), 0.0, 6.0))
    return emit(relax.op.divide(emit(relax.op.multiply(y, shifted)), _number(6.0)))


def _hard_swish_by_limits(emit: Emit, y: Any) -> Any:
    """As the importer of PyTorch writes it, the other way round."""
    shifted = emit(relax.op.maximum(emit(relax.op.add(y, _number(3.0))), _number(0.0)))
    shifted = emit(relax.op.minimum(shifted, _number(6.0)))
    return emit(relax.op.multiply(emit(relax.op.multiply(shifted, _number(1 / 6))), y))


def _gelu_tanh(emit: Emit, y: Any) -> Any:
    cubed = emit(relax.op.multiply(emit(relax.op.power(y, _number(3.0))), _number(0.044715)))
    inner = emit(relax.op.multiply(emit(relax.op.add(y, cubed)), _number((2 / np.pi) ** 0.5)))
    more = emit(relax.op.add(emit(relax.op.tanh(inner)), _number(1.0)))
    return emit(relax.op.multiply(emit(relax.op.multiply(y, _number(0.5))), more))


def _gelu_tanh_of_views(emit: Emit, y: Any) -> Any:
    """As GPT-2 has it: each operator reads a view of its own."""
    return _gelu_tanh(lambda value: emit(relax.op.reshape(emit(value), (1, 18, 40))),
                      emit(relax.op.reshape(y, (1, 18, 40))))  # fmt: skip


def _gelu(emit: Emit, y: Any) -> Any:
    """As the exporter to ONNX writes it."""
    inner = emit(relax.op.erf(emit(relax.op.divide(y, _number(2**0.5)))))
    more = emit(relax.op.add(inner, _number(1.0)))
    return emit(relax.op.multiply(emit(relax.op.multiply(y, more)), _number(0.5)))


def _silu(emit: Emit, y: Any) -> Any:
    gate = emit(relax.op.add(emit(relax.op.exp(emit(relax.op.negative(y)))), _number(1.0)))
    return emit(relax.op.divide(y, gate))


def _hard_swish_by_sigmoid(emit: Emit, y: Any) -> Any:
    """As ONNX's HardSigmoid is imported: a sixth is rounded in half precision."""
    scaled = emit(relax.op.multiply(y, _number(1 / 6)))
    gate = emit(relax.op.clip(emit(relax.op.add(scaled, _number(0.5))), 0.0, 1.0))
    return emit(relax.op.multiply(y, gate))


def _quick_gelu(emit: Emit, y: Any) -> Any:
    """As CLIP has it."""
    return emit(
        relax.op.multiply(y, emit(relax.op.sigmoid(emit(relax.op.multiply(y, _number(1.702))))))
    )


WRITTEN = {
    "quick_gelu": (_quick_gelu, lambda y: y * torch.sigmoid(1.702 * y)),
    "hardswish": (_hard_swish, nnf.hardswish),
    "hardswish by limits": (_hard_swish_by_limits, nnf.hardswish),
    "hardswish by a sigmoid": (_hard_swish_by_sigmoid, nnf.hardswish),
    "gelu_tanh": (_gelu_tanh, lambda y: nnf.gelu(y, approximate="tanh")),
    "gelu_tanh of views": (
        _gelu_tanh_of_views,
        lambda y: nnf.gelu(y, approximate="tanh").reshape(1, 18, 40),
    ),
    "gelu": (_gelu, nnf.gelu),
    "silu": (_silu, nnf.silu),
}


@PRECISIONS
@pytest.mark.parametrize("name", WRITTEN)
def test_activations_are_recognised_however_they_are_written(
    name: str, precision: Precision
) -> None:
    written, wanted = WRITTEN[name]
    x, w = random(2, 9, 24), random(24, 40)
    (unit,) = check(
        lambda emit, v: written(emit, emit(relax.op.matmul(v, relax.const(w)))),
        wanted(t(x) @ t(w)), precision, x,
    )  # fmt: skip
    assert unit.epilogue.activation == name.split()[0]


FORMS = {
    "tanh": torch.tanh,
    "elu": nnf.elu,
    "selu": nnf.selu,
    "softplus": nnf.softplus,
    "mish": nnf.mish,
    "softsign": nnf.softsign,
    "relu_squared": lambda y: nnf.relu(y).square(),
    "none": lambda y: nnf.elu(y, 0.5),
}


class After(torch.nn.Module):
    def __init__(self, name: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear, self.name = torch.nn.Linear(24, 40), name

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return FORMS[self.name](self.linear(x))


@PRECISIONS
@pytest.mark.parametrize("name", FORMS)
def test_activations_of_pytorch_are_part_of_the_product(name: str, precision: Precision) -> None:
    units, _ = placed_units.of_torch(After(name), precision, t(random(2, 9, 24)))
    (unit,) = units
    assert isinstance(unit, Matmul)
    assert unit.epilogue.activation == name


def test_what_is_nearly_an_activation_stays_outside() -> None:
    x, w = random(2, 9, 24), random(24, 40)

    def halved(emit: Emit, v: Any) -> Any:
        return relax.op.multiply(_hard_swish(emit, emit(relax.op.matmul(v, relax.const(w)))),
                                 _number(0.5))  # fmt: skip

    (unit,) = check(halved, nnf.hardswish(t(x) @ t(w)) / 2, FLOAT32, x)
    assert unit.epilogue.activation in ("none", "hardswish")

    def read_twice(emit: Emit, v: Any) -> Any:
        y = emit(relax.op.matmul(v, relax.const(w)))
        return relax.op.add(_gelu(emit, y), emit(relax.op.tanh(y)))

    y = t(x) @ t(w)
    (unit,) = check(read_twice, nnf.gelu(y) + y.tanh(), FLOAT32, x)
    assert unit.epilogue.activation == "none"


@pytest.mark.parametrize("least", [-20.0, -65504.0, -3.3e38])
def test_a_guard_against_infinity_stays_outside(least: float) -> None:
    """silu(-inf) is not a number; silu(max(-inf, -20)) is."""
    x, w = random(2, 9, 24), random(24, 40)

    def guarded(emit: Emit, v: Any) -> Any:
        y = emit(relax.op.matmul(v, relax.const(w)))
        y = emit(relax.op.maximum(y, _number(least)))
        return relax.op.multiply(emit(relax.op.sigmoid(y)), y)

    (unit,) = check(guarded, nnf.silu(t(x) @ t(w)), FLOAT32, x)
    assert unit.epilogue.activation in ("none", "clip")


@PRECISIONS
def test_limits_of_a_sum_are_not_those_of_the_clip_before_it(precision: Precision) -> None:
    x, w = random(1, 16, 6, 6), random(16, 16, 1, 1)

    def limited(emit: Emit, v: Any) -> Any:
        y = emit(relax.op.clip(emit(relax.op.nn.conv2d(v, relax.const(w))), -0.2, 0.2))
        return relax.op.minimum(emit(relax.op.add(y, v)), _number(0.1))

    wanted = (nnf.conv2d(t(x), t(w)).clamp(-0.2, 0.2) + t(x)).clamp(max=0.1)
    check(limited, wanted, precision, x)


@pytest.mark.parametrize("follow", ["limit", "small number", "whole numbers", "two readers"])
def test_what_follows_an_activation_is_computed(follow: str) -> None:
    """The activation ends where its value is known; operators that hardly change it remain."""
    x, w = random(2, 9, 24), random(24, 40)
    wanted = nnf.silu(t(x) @ t(w))

    def after(emit: Emit, v: Any) -> Any:
        y = emit(_silu(emit, emit(relax.op.matmul(v, relax.const(w)))))
        if follow == "limit":
            return relax.op.minimum(y, _number(2.0))
        if follow == "small number":
            return relax.op.add(y, _number(1e-4))
        if follow == "whole numbers":
            return relax.op.astype(emit(relax.op.astype(y, "int32")), "float32")
        return relax.op.add(emit(relax.op.mean(y, [1], keepdims=True)),
                            emit(relax.op.max(y, [1], keepdims=True)))  # fmt: skip

    results = {
        "limit": wanted.clamp(max=2.0),
        "small number": wanted + 1e-4,
        "whole numbers": wanted.int().float(),
        "two readers": wanted.mean(1, keepdim=True) + wanted.amax(1, keepdim=True),
    }
    (unit, *_) = check(after, results[follow], FLOAT32, x)
    assert unit.epilogue.activation == "silu"


def test_truncated_values_are_no_activation() -> None:
    x, w = random(2, 9, 24), random(24, 40)

    def truncated(emit: Emit, v: Any) -> Any:
        y = emit(relax.op.matmul(v, relax.const(w)))
        whole = emit(relax.op.astype(emit(relax.op.astype(y, "int32")), "float32"))
        return relax.op.multiply(emit(relax.op.sigmoid(whole)), whole)

    (unit,) = check(truncated, nnf.silu((t(x) @ t(w)).int().float()), FLOAT32, x)
    assert unit.epilogue.activation == "none"


def test_an_activation_that_two_reductions_read_is_stored_once() -> None:
    """In half precision both read one wider copy, which only one of them can cast by itself."""
    x, w = random(1, 8, 6, 6), random(16, 8, 1, 1)
    y = nnf.silu(nnf.conv2d(t(x), t(w)))
    wanted = torch.cat([y.mean((2, 3)), y.amax((2, 3))], 1)

    def gates(emit: Emit, v: Any) -> Any:
        z = emit(relax.op.nn.conv2d(v, relax.const(w)))
        z = emit(relax.op.multiply(z, emit(relax.op.sigmoid(z))))
        parts = [emit(relax.op.mean(z, [2, 3])), emit(relax.op.max(z, [2, 3]))]
        return relax.op.concat(parts, 1)

    (unit, *_) = check(gates, wanted, FLOAT16, x)
    assert unit.epilogue.activation == "silu"


def test_patches_become_channels() -> None:
    x, patch = random(1, 3, 8, 8), random(8, 3, 4, 4)
    (unit,) = check(
        lambda emit, v: relax.op.nn.conv2d(v, relax.const(patch), strides=(4, 4)),
        nnf.conv2d(t(x), t(patch), stride=4), FLOAT32, x,
    )  # fmt: skip
    assert (unit.c, unit.s) == (12, 1)


@PRECISIONS
def test_a_product_with_gelu_and_a_norm(precision: Precision) -> None:
    x, w, bias = random(2, 5, 24), random(24, 40), random(40)
    gamma, beta = random(40), random(40)

    def build(emit: Any, v: Any) -> Any:
        y = emit(relax.op.add(emit(relax.op.matmul(v, relax.const(w))), relax.const(bias)))
        y = emit(relax.op.nn.gelu(y))
        return relax.op.nn.layer_norm(y, relax.const(gamma), relax.const(beta), axes=[-1])

    y = nnf.gelu(t(x) @ t(w) + t(bias))
    wanted = nnf.layer_norm(y, (40,), t(gamma), t(beta))
    units = check(build, wanted, precision, x)
    assert [type(u) for u in units] == [Matmul, Norm]
    assert units[0].epilogue.activation == "gelu"


@PRECISIONS
def test_attention_reads_its_heads_where_the_projections_left_them(precision: Precision) -> None:
    rows, heads, dim = 7, 2, 16
    x, mask = random(1, rows, heads * dim), random(1, 1, 1, rows)
    weights = [random(heads * dim, heads * dim) / 8 for _ in range(3)]

    def build(emit: Any, v: Any, m: Any) -> Any:
        def split(w: Array, axes: list[int]) -> Any:
            y = emit(relax.op.matmul(v, relax.const(w)))
            y = emit(relax.op.reshape(y, (1, rows, heads, dim)))
            return emit(relax.op.permute_dims(y, axes))

        q, k, value = (
            split(w, axes)
            for w, axes in zip(weights, ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]), strict=True)
        )
        scores = emit(relax.op.matmul(emit(relax.op.multiply(q, relax.const(0.25, "float32"))), k))
        soft = emit(relax.op.nn.softmax(emit(relax.op.add(scores, m)), -1))
        out = emit(relax.op.permute_dims(emit(relax.op.matmul(soft, value)), [0, 2, 1, 3]))
        return relax.op.reshape(out, (1, rows, heads * dim))

    q, k, value = ((t(x) @ t(w)).reshape(1, rows, heads, dim).transpose(1, 2) for w in weights)
    scores = torch.softmax(q @ k.transpose(-1, -2) * 0.25 + t(mask), -1)
    wanted = (scores @ value).transpose(1, 2).reshape(1, rows, heads * dim)
    units = check(build, wanted, precision, x, mask)
    assert sum(isinstance(u, Attention) for u in units) == 1
    assert {type(u) for u in units} == {Attention, Matmul}


@PRECISIONS
def test_a_batch_of_attentions_is_moved_nowhere(precision: Precision) -> None:
    """PyTorch's layer puts the sequence before the batch, multiplies by as many copies of the
    weight, merges the batch with the heads, and goes back."""
    from tvm.relax.frontend.torch import from_exported_program

    class Block(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = torch.nn.LayerNorm(64)
            self.attention = torch.nn.MultiheadAttention(64, 2, batch_first=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.norm(x)
            found: torch.Tensor = self.attention(y, y, y, need_weights=False)[0]
            return x + found

    torch.manual_seed(0)
    block, x = Block().eval(), torch.from_numpy(random(3, 17, 64))
    exported = from_exported_program(
        torch.export.export(block, (x,)), unwrap_unit_return_tuple=True
    )
    options = CompileOptions(precision=precision)
    made = placed_units.lowered(exported, options).module
    kinds = sorted(unit.kind for unit in placed_units.placed(made))
    assert kinds == ["attention", "matmul", "matmul", "norm"]
    names = [f.name_hint for f, g in made.functions_items() if isinstance(g, tirx.PrimFunc)]
    assert not [name for name in names if "transpose" in name or "take" in name]
    (found,) = placed_units.run(made, x.numpy())
    wanted = block(x).detach().numpy()
    assert np.abs(found - wanted).max() / np.abs(wanted).max() < placed_units.TOLERANCE[precision]


def test_pools_and_a_mean_over_pixels() -> None:
    x, w = random(1, 8, 9, 9), random(8, 8, 1, 1)

    def build(emit: Any, v: Any) -> Any:
        y = emit(relax.op.nn.conv2d(v, relax.const(w)))
        y = emit(relax.op.nn.max_pool2d(y, (3, 3), strides=(2, 2), padding=(1, 1)))
        return relax.op.mean(y, [2, 3])

    y = nnf.max_pool2d(nnf.conv2d(t(x), t(w)), 3, 2, 1).mean((2, 3))
    units = check(build, y, FLOAT32, x)
    assert sorted(type(u).__name__ for u in units) == ["Conv2d", "Pool", "Pool"]
    assert {u.form for u in units if isinstance(u, Pool)} == {"max", "mean"}


@PRECISIONS
@pytest.mark.parametrize(
    ("size", "pools", "left"),
    [((2, 3), 1, 0), ((4, 6), 0, 0), ((3, 4), 0, 1)],
    ids=["equal-windows", "pixels", "windows-that-differ"],
)
def test_averages_are_kernels_without_casts(
    precision: Precision, size: tuple[int, int], pools: int, left: int
) -> None:
    x, w = random(1, 8, 4, 6), random(8, 8, 1, 1)
    filters = relax.const(w)

    def build(emit: Any, v: Any) -> Any:
        y = emit(relax.op.nn.relu(emit(relax.op.nn.conv2d(v, filters))))
        return relax.op.nn.conv2d(emit(relax.op.nn.adaptive_avg_pool2d(y, size)), filters)

    y = nnf.adaptive_avg_pool2d(nnf.relu(nnf.conv2d(t(x), t(w))), size)
    wanted = nnf.conv2d(y, t(w))
    units = check(build, wanted, precision, x)
    inside = [u.pooled for u in units if isinstance(u, Conv2d) and u.pooled]
    assert len(inside) + len([u for u in units if isinstance(u, Pool)]) == pools
    made = placed_units.lowered(module(build, x), CompileOptions(precision=precision)).module
    assert len([name for name in kernels(made) if "pool" in name]) == left
    if not left:
        assert len([name for name in kernels(made) if "cast" in name]) <= 2  # the edges


def test_a_value_that_others_read_too_ends_its_kernel() -> None:
    x, w = random(1, 8, 5, 5), random(8, 8, 1, 1)

    def build(emit: Any, v: Any) -> Any:
        y = emit(relax.op.nn.conv2d(v, relax.const(w)))
        return relax.op.multiply(emit(relax.op.nn.relu(y)), y)

    y = nnf.conv2d(t(x), t(w))
    (unit,) = check(build, nnf.relu(y) * y, FLOAT32, x)
    assert unit.epilogue.activation == "none"


def kernels(module: tvm.IRModule) -> list[str]:
    """The names of the kernels that are no units'."""
    functions = ((v.name_hint, f) for v, f in module.functions_items())
    return [n for n, f in functions if isinstance(f, tirx.PrimFunc) and emit.read(f) is None]


@PRECISIONS
def test_concatenations_and_slices_cost_nothing(precision: Precision) -> None:
    x, head = random(1, 16, 6, 5), random(8, 64, 1, 1) / 8
    shapes = ((32, 16, 3, 3), (16, 16, 3, 3), (16, 16, 1, 1), (32, 32, 1, 1))
    weights = [random(*shape) / 8 for shape in shapes]

    def build(emit: Any, v: Any) -> Any:
        def conv(value: Any, w: Array) -> Any:
            pad = (w.shape[2] // 2,) * 2
            return emit(
                relax.op.nn.relu(emit(relax.op.nn.conv2d(value, relax.const(w), padding=pad)))
            )

        whole = conv(v, weights[0])
        first = conv(emit(relax.op.strided_slice(whole, [1], [16], [32])), weights[1])
        second = conv(first, weights[2])
        inner = emit(relax.op.concat([second, first], 1))
        outer = emit(relax.op.concat([whole, conv(inner, weights[3])], 1))
        return relax.op.nn.conv2d(outer, relax.const(head))

    def conv(value: torch.Tensor, w: Array) -> torch.Tensor:
        return nnf.relu(nnf.conv2d(value, t(w), padding=w.shape[2] // 2))

    whole = conv(t(x), weights[0])
    first = conv(whole[:, 16:], weights[1])
    inner = torch.cat([conv(first, weights[2]), first], 1)
    wanted = nnf.conv2d(torch.cat([whole, conv(inner, weights[3])], 1), t(head))
    units = check(build, wanted, precision, x)
    assert len(units) == 5
    assert sorted(u.output.pitch or 0 for u in units) == [0, 32, 32, 64, 64]
    made = placed_units.lowered(module(build, x), CompileOptions(precision=precision)).module
    assert not [name for name in kernels(made) if "concat" in name or "slice" in name]


def test_a_shared_buffer_is_kept_as_long_as_it_is_read() -> None:
    """Other kernels allocate memory of the same size before the concatenation is read."""
    x, w = random(1, 16, 5, 5), [random(16, 16, 3, 3) / 12 for _ in range(5)]
    head = random(16, 32, 1, 1) / 4

    def build(emit: Any, v: Any) -> Any:
        def conv(value: Any, weight: Array) -> Any:
            return emit(relax.op.nn.conv2d(value, relax.const(weight), padding=(1, 1)))

        a = conv(v, w[0])
        b = conv(a, w[1])
        joined = emit(relax.op.concat([a, b], 1))
        c = conv(conv(conv(b, w[2]), w[3]), w[4])
        return relax.op.add(emit(relax.op.nn.conv2d(joined, relax.const(head))), c)

    def conv(value: torch.Tensor, weight: Array) -> torch.Tensor:
        return nnf.conv2d(value, t(weight), padding=1)

    a = conv(t(x), w[0])
    b = conv(a, w[1])
    wanted = nnf.conv2d(torch.cat([a, b], 1), t(head)) + conv(conv(conv(b, w[2]), w[3]), w[4])
    units = check(build, wanted, FLOAT32, x)
    assert sorted(u.output.pitch or 0 for u in units) == [0, 0, 0, 0, 32, 32]


def test_a_dense_block_has_one_buffer() -> None:
    x, stem = random(1, 8, 5, 5), random(8, 8, 1, 1)
    weights = [random(8, 8 * n, 3, 3) / 9 for n in (1, 2, 3)]

    def build(emit: Any, v: Any) -> Any:
        features = [emit(relax.op.nn.conv2d(v, relax.const(stem)))]
        for w in weights:
            known = features[0] if len(features) == 1 else emit(relax.op.concat(features, 1))
            features.append(emit(relax.op.nn.conv2d(known, relax.const(w), padding=(1, 1))))
        return relax.op.concat(features, 1)

    features = [nnf.conv2d(t(x), t(stem))]
    for w in weights:
        features.append(nnf.conv2d(torch.cat(features, 1), t(w), padding=1))
    units = check(build, torch.cat(features, 1), FLOAT32, x)
    assert {u.output.pitch for u in units} == {32}
    assert sorted(u.output.offset for u in units) == [0, 8, 16, 24]


def test_what_is_not_aligned_or_read_twice_is_copied() -> None:
    x = random(1, 8, 5, 5)
    weights = [random(6, 8, 1, 1), random(10, 8, 1, 1), random(8, 16, 1, 1)]

    def build(emit: Any, v: Any) -> Any:
        a, b = (emit(relax.op.nn.conv2d(v, relax.const(w))) for w in weights[:2])
        one = emit(relax.op.nn.conv2d(emit(relax.op.concat([a, b], 1)), relax.const(weights[2])))
        two = emit(relax.op.nn.conv2d(emit(relax.op.concat([b, a], 1)), relax.const(weights[2])))
        return relax.op.add(one, two)

    a, b = (nnf.conv2d(t(x), t(w)) for w in weights[:2])
    wanted = sum(nnf.conv2d(torch.cat(pair, 1), t(weights[2])) for pair in ((a, b), (b, a)))
    units = check(build, torch.as_tensor(wanted), FLOAT32, x)
    assert {u.output.pitch for u in units} == {None}
