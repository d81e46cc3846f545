"""Every pass of ours on a small module, beside the module that it should give."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
import tvm
from tvm import relax, s_tir, te, topi
from tvm.tirx import FloatImm

from support.graph_passes import Build, const, module, tidy
from tvmscope.compiler import passes, targets
from tvmscope.compiler.cost import tiles
from tvmscope.compiler.graph.rewrite import OUT_ELEMENTWISE_FUSABLE
from tvmscope.compiler.kernels import attention, blocked, norms
from tvmscope.compiler.kernels.convolutions import choose, read
from tvmscope.compiler.kernels.packing import pack_columns
from tvmscope.compiler.kernels.scatter import boxes
from tvmscope.compiler.kernels.scatter.known_indices import Box, copied_rows
from tvmscope.compiler.kernels.selection import sort
from tvmscope.compiler.manifest.context import Context
from tvmscope.compiler.rewrites.cpu import fast_math, split_batch
from tvmscope.compiler.rewrites.cuda.compile_units import packed_name
from tvmscope.compiler.schedules import cpu, cuda
from tvmscope.compiler.schedules.apply import finished
from tvmscope.compiler.tunable import traces
from tvmscope.compiler.tunable.knobs import Knobs, notes, workload_of
from tvmscope.compiler.units import emit as emitted
from tvmscope.compiler.units import match
from tvmscope.compiler.units.choose import Chooser
from tvmscope.core.options import CompileOptions
from tvmscope.core.precision import FLOAT16
from tvmscope.core.target import Target
from tvmscope.core.tuning import Candidate, Choice
from tvmscope.cuda.cubins.compile_pool import Failure, Job, compile_many
from tvmscope.cuda.units import View

op = relax.op
Pair = tuple[tvm.IRModule, tvm.IRModule]
CASES: dict[str, Callable[[Target], Pair]] = {}
CHOICES: dict[str, dict[str, Choice]] = {}
"""What a search found, for the pass that applies it; its case leaves it here."""
SM_90 = targets.resolve("cuda:sm_90")
FUSABLE = {"op_pattern": OUT_ELEMENTWISE_FUSABLE}


def case(name: str) -> Callable[[Callable[[Target], Pair]], Callable[[Target], Pair]]:
    def keep(make: Callable[[Target], Pair]) -> Callable[[Target], Pair]:
        CASES[name] = make
        return make

    return keep


def graphs(before: Build, after: Build, *inputs: torch.Tensor) -> Pair:
    return module(before, *inputs), module(after, *inputs)


def kernel(compute: Any, *args: Any, name: str, attrs: dict[str, Any] | None = None) -> relax.Expr:
    """A call of a kernel, in the function that is being built."""
    builder = relax.BlockBuilder.current()
    return builder.emit(
        builder.call_te(compute, *args, primfunc_name_hint=name, primfunc_attrs=attrs)
    )


def emit(value: relax.Expr) -> relax.Var:
    return relax.BlockBuilder.current().emit(value)


@pytest.mark.parametrize("name", [
    each.name for each in passes.PASSES if each.make.__module__ != passes.tvm_own.__name__
])  # fmt: skip
def test_a_pass_makes_of_a_module_what_it_should(name: str, host: Target) -> None:
    assert name in CASES, "every pass has its before and after here"
    (manifest,) = (each for each in passes.PASSES if each.name == name)
    target = host if "cpu" in (*manifest.ours, *(manifest.searched or ())) else SM_90
    before, after = CASES[name](target)
    options = CompileOptions(precision=FLOAT16, choices=CHOICES.get(name, {}))
    step = manifest.make(Context(target, options))
    with tvm.target.Target(targets.to_tvm(target), host={"kind": "llvm"}):
        tvm.ir.assert_structural_equal(tidy(step(before)), tidy(after))


# ---- graph, precision, tidy -------------------------------------------------------------------


@case("fold-arithmetic")
def _(_: Target) -> Pair:
    return graphs(
        lambda x: op.multiply(x, op.add(const([1.0, 2.0]), const([3.0, 4.0]))),
        lambda x: op.multiply(x, const([4.0, 6.0])),
        torch.ones(3, 2),
    )


@case("fold-affine")
def _(_: Target) -> Pair:
    a, b = const([1.0, 2.0]), const([4.0, 8.0])
    return graphs(
        lambda x: op.add(op.multiply(op.divide(op.subtract(x, a), b), a), b),
        lambda x: op.add(op.multiply(x, const([0.25, 0.25])), const([3.75, 7.5])),
        torch.ones(3, 2),
    )


@case("fold-scales")
def _(_: Target) -> Pair:
    weight, bias, scale = const(np.ones((4, 2))), const([1.0, 2.0]), const([[0.5], [0.25]])
    scaled = const(np.ones((4, 2)) * [0.5, 0.25]), const([[0.5, 0.5]])

    def before(x: relax.Expr) -> relax.Expr:
        return op.multiply(op.permute_dims(op.add(op.matmul(x, weight), bias)), scale)

    def after(x: relax.Expr) -> relax.Expr:
        return op.permute_dims(op.add(op.matmul(x, scaled[0]), scaled[1]))

    return graphs(before, after, torch.ones(3, 4))


@case("separable-pools")
def _(_: Target) -> Pair:
    def after(x: relax.Expr) -> relax.Expr:
        y = op.nn.max_pool2d(emit(op.reshape(x, (2, 15, 9, 7))), (2, 2), (2, 2))
        y = op.nn.max_pool2d(emit(op.reshape(emit(y), (2, 3, 5, 12))), (3, 1), (1, 1), (1, 0, 1, 0))
        return op.reshape(emit(y), (2, 3, 5, 4, 3))

    return graphs(
        lambda x: op.nn.max_pool3d(x, (3, 2, 2), (1, 2, 2), (1, 0, 0)), after,
        torch.ones(2, 3, 5, 9, 7),
    )  # fmt: skip


@case("push-numbers")
def _(_: Target) -> Pair:
    weight, number = np.ones((4, 2), np.float32), const(2.0)
    return graphs(
        lambda x: op.matmul(op.multiply(op.nn.silu(x), number), const(weight)),
        lambda x: op.matmul(op.nn.silu(x), const(2 * weight)),
        torch.ones(3, 4),
    )


@case("join-branches")
def _(_: Target) -> Pair:
    wide, narrow = np.ones((2, 2, 3, 3), np.float32), np.full((2, 2, 1, 1), 2, np.float32)
    joined = wide + np.pad(narrow, ((0, 0), (0, 0), (1, 1), (1, 1)))

    def before(x: relax.Expr) -> relax.Expr:
        terms = op.nn.conv2d(x, const(wide), padding=1), op.nn.conv2d(x, const(narrow))
        return op.add(*(emit(term) for term in terms))

    return graphs(
        before, lambda x: op.nn.conv2d(x, const(joined), padding=1), torch.ones(1, 2, 5, 4)
    )


@case("turn-attention")
def _(_: Target) -> Pair:
    def weights(scores: relax.Expr) -> relax.Expr:
        return op.nn.softmax(scores)

    return graphs(
        lambda v, s: op.matmul(v, op.permute_dims(weights(s), [0, 2, 1])),
        lambda v, s: op.permute_dims(
            emit(op.matmul(emit(weights(s)), emit(op.permute_dims(v, [0, 2, 1])))), [0, 2, 1]
        ),
        torch.ones(2, 3, 7),
        torch.ones(2, 5, 7),
    )


@case("drop-empty-scatters")
def _(_: Target) -> Pair:
    nothing = const(np.zeros((0, 1)), "int64"), const(np.zeros((0, 5)))
    return graphs(lambda x: op.negative(op.scatter_nd(x, *nothing)), op.negative, torch.ones(3, 5))


@case("fold-pads")
def _(_: Target) -> Pair:
    weight = const(np.ones((5, 3, 3, 3)))
    return graphs(
        lambda x: op.nn.conv2d(op.nn.pad(x, [0, 0, 0, 0, 0, 1, 2, 3]), weight, padding=1),
        lambda x: op.nn.conv2d(x, weight, padding=(1, 3, 2, 4)),
        torch.ones(1, 3, 9, 7),
    )


@case("signals")
def _(_: Target) -> Pair:
    weight = np.arange(8 * 3 * 5, dtype=np.float32).reshape(8, 3, 5)

    def after(x: relax.Expr) -> relax.Expr:
        image = op.reshape(x, (2, 3, 1, 9))
        made = op.nn.conv2d(image, const(weight[:, :, None]), padding=(0, 1, 0, 1))
        return op.reshape(op.nn.relu(made), (2, 8, 7))

    return graphs(
        lambda x: op.nn.relu(op.nn.conv1d(x, const(weight), padding=1)), after,
        torch.ones(2, 3, 9),
    )  # fmt: skip


@case("volumes")
def _(_: Target) -> Pair:
    weight = np.arange(8 * 3 * 2 * 5, dtype=np.float32).reshape(8, 3, 2, 5, 1)

    def after(x: relax.Expr) -> relax.Expr:
        slices = op.reshape(op.permute_dims(x, [0, 2, 1, 3, 4]), (2 * 4, 3, 9, 6))
        frames = op.reshape(slices, (2, 4, 1, 3, 9, 6))
        taps = [op.strided_slice(frames, [1], [n], [n + 3], [1]) for n in (0, 1)]
        seen = op.reshape(op.concat(taps, 3), (2 * 3, 2 * 3, 9, 6))
        kernel = weight.transpose(0, 2, 1, 3, 4).reshape(8, 6, 5, 1)
        made = op.nn.relu(op.nn.conv2d(seen, const(kernel), padding=(2, 0, 2, 0)))
        return op.permute_dims(op.reshape(made, (2, 3, 8, 9, 6)), [0, 2, 1, 3, 4])

    return graphs(
        lambda x: op.nn.relu(op.nn.conv3d(x, const(weight), padding=(0, 2, 0))), after,
        torch.ones(2, 3, 4, 9, 6),
    )  # fmt: skip


@case("scalar-operands")
def _(_: Target) -> Pair:
    half = FloatImm("float32", 0.5)
    return graphs(lambda x: op.add(x, half), lambda x: op.add(x, const(0.5)), torch.ones(3, 5))


@case("wide-sums")
def _(_: Target) -> Pair:
    return graphs(
        op.matmul,
        lambda x, y: op.astype(op.matmul(x, y, "float32"), "float16"),
        torch.ones(3, 5).half(),
        torch.ones(5, 7).half(),
    )


@case("fold-casts")
def _(_: Target) -> Pair:
    return graphs(
        lambda x: op.multiply(x, op.astype(const([1.0, 2.0]), "float16")),
        lambda x: op.multiply(x, const([1.0, 2.0], "float16")),
        torch.ones(3, 2).half(),
    )


@case("norm-rows")
def _(_: Target) -> Pair:
    """Two groups of three channels each."""
    gain, bias = const(np.arange(6) + 1.0), const(np.arange(6) - 1.0)
    ones, zeros = const(np.ones(60)), const(np.zeros(60))

    def rows(x: relax.Expr) -> relax.Expr:
        done = op.nn.layer_norm(op.reshape(x, (4, 60)), ones, zeros, [-1], 1e-5)
        scaled = op.multiply(op.reshape(done, (2, 6, 4, 5)), op.reshape(gain, (6, 1, 1)))
        return op.add(scaled, op.reshape(bias, (6, 1, 1)))

    return graphs(
        lambda x: op.nn.group_norm(x, gain, bias, 2, 1, [2, 3], 1e-5),
        rows,
        torch.ones(2, 6, 4, 5),
    )


@case("sink-reshapes")
def _(_: Target) -> Pair:
    return graphs(
        lambda x: op.nn.relu(op.reshape(x, (3, 5))),
        lambda x: op.reshape(op.nn.relu(x), (3, 5)),
        torch.ones(15),
    )


def _convolved(images: int) -> tvm.IRModule:
    """A convolution that reads and writes a megabyte for each image: a core has one near."""
    weight = const(np.ones((8, 8, 1, 1)))
    return module(lambda x: op.nn.conv2d(x, weight), torch.ones(images, 8, 128, 128))


def _in_parts() -> tvm.IRModule:
    """The module for two of four images."""
    main = _convolved(2)["main"].with_attr(split_batch.PARTS, 2)
    return tvm.IRModule({"main": main})


@case("split-batch")
def _(target: Target) -> Pair:
    assert target.cores == 2
    return _convolved(4), _in_parts()


@case("join-batch")
def _(_: Target) -> Pair:
    split = _in_parts()
    main = split["main"].without_attr(split_batch.PARTS)
    builder = relax.BlockBuilder()
    called = builder.add_func(main.without_attr("global_symbol"), "part_of_batch")
    x = relax.Var("input0", relax.TensorType((4, 8, 128, 128), "float32"))
    with builder.function("main", [x], attrs=dict(main.attrs)):
        with builder.dataflow():
            made = []
            for first, end in ((0, 2), (2, 4)):
                part = builder.emit_te(topi.strided_slice, x, [first], [end], [1], [0])
                made.append(builder.emit(relax.Call(called, [part])))
            whole = builder.emit_output(builder.emit_te(topi.concatenate, made))
        builder.emit_func_output(whole)
    return split, builder.get()


# ---- layout -----------------------------------------------------------------------------------


@case("fast-scatter")
def _(_: Target) -> Pair:
    box = Box((0, 1), (1, 1), (16, 2))
    kept = copied_rows((box,), (16, 8))
    assert kept is not None
    return graphs(
        lambda x, u: op.slice_scatter(x, u, 1, 3, 1, axis=1),
        lambda x, u: kernel(
            partial(boxes.copy_boxes, boxes=(box,), rows=kept), x, u, name="scatter_copy",
            attrs={boxes.BOXES: boxes.boxes_text((box,), kept)},
        ),
        torch.ones(16, 8),
        torch.ones(16, 2),
    )  # fmt: skip


@case("fast-select")
def _(_: Target) -> Pair:
    def after(x: relax.Expr) -> relax.Expr:
        order = partial(sort.order, most=5, descending=True, gpu=False)
        found = kernel(order, emit(op.reshape(x, (3, 5))), name="sort_order")
        places = emit(op.reshape(emit(relax.TupleGetItem(found, 0)), (3, 5)))
        return op.astype(places, "int32")

    return graphs(
        lambda x: op.argsort(x, axis=-1, descending=True, dtype="int32"), after, torch.ones(3, 5)
    )


@case("subpixel-transposed")
def _(_: Target) -> Pair:
    weight = np.arange(24, dtype=np.float32).reshape(3, 2, 2, 2)  # IOHW: no two taps overlap
    small = weight.transpose(1, 2, 3, 0).reshape(8, 3, 1, 1)

    def after(x: relax.Expr) -> relax.Expr:
        parts = op.reshape(op.nn.conv2d(x, const(small), padding=(0, 0, 0, 0)), (1, 2, 2, 2, 5, 7))
        turned = op.permute_dims(parts, [0, 1, 4, 2, 5, 3])
        whole = op.reshape(turned, (1, 2, 10, 14))
        return op.strided_slice(whole, axes=[2, 3], begin=[0, 0], end=[10, 14])

    return graphs(
        lambda x: op.nn.conv2d_transpose(x, const(weight), strides=2), after,
        torch.ones(1, 3, 5, 7),
    )  # fmt: skip


@case("fuse-attention")
def _(target: Target) -> Pair:
    panel = tiles.panel(target)

    def after(q: relax.Expr, k: relax.Expr, v: relax.Expr) -> relax.Expr:
        pack = partial(blocked.pack_panels, panel=panel)
        query = emit(op.reshape(q, (2, 7, 5)))
        keys = kernel(pack, emit(op.reshape(k, (2, 5, 9))), name="pack")
        values = kernel(pack, emit(op.reshape(v, (2, 9, 3))), name="pack")
        shape = attention.Shape(
            columns=9, width=3, computed_rows=tiles.padded_rows(7, target), heads=2,
            empty_is_zero=False,
        )  # fmt: skip
        compute = partial(attention.attention, shape=shape)
        made = kernel(compute, query, keys, values, name="attention", attrs=FUSABLE)
        return op.reshape(made, (2, 7, 3))

    return graphs(
        lambda q, k, v: op.matmul(op.nn.softmax(op.matmul(q, k), -1), v), after,
        torch.ones(2, 7, 5), torch.ones(2, 5, 9), torch.ones(2, 9, 3),
    )  # fmt: skip


@case("pack-matmul")
def _(target: Target) -> Pair:
    weight = np.arange(31 * 17, dtype=np.float32).reshape(31, 17)
    compute = partial(
        blocked.matmul, columns=17, computed_rows=tiles.padded_rows(7, target),
        out_dtype="float32", notes=notes("matmul 7x31 31x17 float32", {}),
    )  # fmt: skip
    packed = pack_columns(weight, tiles.panel(target))
    return graphs(
        lambda x: op.matmul(x, const(weight)),
        lambda x: kernel(compute, x, const(packed), name="matmul"),
        torch.ones(7, 31),
    )


@case("block-layout")
def _(target: Target) -> Pair:
    weight = const(np.ones((17, 5, 3, 3)))

    def before(x: relax.Expr) -> relax.Expr:
        return op.nn.relu(op.nn.conv2d(x, weight, padding=1))

    def after(x: relax.Expr) -> relax.Expr:
        call = relax.BlockBuilder.current().normalize(op.nn.conv2d(x, weight, padding=1))
        asked = read(call)
        assert asked is not None
        made = choose(asked, target, is_blocked=False, winograd=True, knobs=Knobs())
        assert made is not None
        assert made.name == "conv2d"
        result = kernel(made.compute, x, const(made.weight), name=made.name, attrs=made.attrs)
        return kernel(blocked.from_blocks, emit(op.nn.relu(result)), 17, name="from_blocks")

    return graphs(before, after, torch.ones(1, 5, 9, 7))


@case("row-kernels")
def _(_: Target) -> Pair:
    compute = partial(norms.softmax, empty_is_zero=False)
    return graphs(
        lambda x: op.nn.softmax(x, -1),
        lambda x: kernel(compute, x, name="softmax", attrs=FUSABLE),
        torch.ones(7, 31),
    )


@case("fast-math")
def _(_: Target) -> Pair:
    return graphs(
        op.sigmoid, lambda x: kernel(fast_math.sigmoid, x, name="sigmoid"), torch.ones(3, 5)
    )


@case("nhwc")
def _(_: Target) -> Pair:
    weight = np.arange(8 * 3 * 9, dtype=np.float32).reshape(8, 3, 3, 3)
    last = const(np.ascontiguousarray(weight.transpose(0, 2, 3, 1)))

    def after(x: relax.Expr) -> relax.Expr:
        made = op.nn.conv2d(
            op.permute_dims(x, [0, 2, 3, 1]), last, padding=1, data_layout="NHWC",
            kernel_layout="OHWI", out_layout="NHWC",
        )  # fmt: skip
        return op.permute_dims(op.nn.relu(made), [0, 3, 1, 2])

    return graphs(
        lambda x: op.nn.relu(op.nn.conv2d(x, const(weight), padding=1)), after,
        torch.ones(1, 3, 9, 7),
    )  # fmt: skip


@case("sink-shuffles")
def _(_: Target) -> Pair:
    bias = np.arange(3, dtype=np.float32).reshape(1, 3, 1, 1)

    def shuffled(x: relax.Expr) -> relax.Expr:
        parts = op.reshape(x, (1, 3, 2, 2, 5, 7))
        return op.reshape(op.permute_dims(parts, [0, 1, 4, 2, 5, 3]), (1, 3, 10, 14))

    return graphs(
        lambda x: op.nn.relu(op.add(shuffled(x), const(bias))),
        lambda x: shuffled(op.nn.relu(op.add(x, const(bias.repeat(4, 1))))),
        torch.ones(1, 12, 5, 7),
    )


@case("pad-channels")
def _(_: Target) -> Pair:
    first, second = np.ones((27, 3, 3, 64), np.float32), np.ones((64, 3, 3, 27), np.float32)
    bias = np.ones((1, 1, 1, 27), np.float32)

    def convolved(x: relax.Expr, weight: np.ndarray[Any, Any]) -> relax.Expr:
        how = {"data_layout": "NHWC", "kernel_layout": "OHWI", "out_layout": "NHWC"}
        return op.nn.conv2d(x, const(weight.astype(np.float16), "float16"), padding=1, **how)

    def net(x: relax.Expr, first: Any, bias: Any, second: Any) -> relax.Expr:
        y = op.add(convolved(x, first), const(bias, "float16"))
        return convolved(op.nn.relu(y), second)

    wide = [(0, 5), (0, 0), (0, 0), (0, 0)]
    padded = np.pad(first, wide), np.pad(bias, wide[::-1]), np.pad(second, wide[::-1])
    return graphs(
        lambda x: net(x, first, bias, second), lambda x: net(x, *padded),
        torch.ones(1, 56, 56, 64).half(),
    )  # fmt: skip


@case("narrow")
def _(_: Target) -> Pair:
    return graphs(
        lambda x, y: op.add(op.astype(x, "float32"), op.astype(y, "float32")),
        lambda x, y: op.astype(op.add(x, y), "float32"),
        torch.ones(3, 5).half(),
        torch.ones(3, 5).half(),
    )


@case("share-weights")
def _(_: Target) -> Pair:
    weight = np.ones((4, 6), np.float32)

    def before(x: relax.Expr) -> relax.Expr:
        return op.matmul(x, emit(op.broadcast_to(const(weight), (3, 4, 6))))

    def after(x: relax.Expr) -> relax.Expr:
        return op.matmul(x, emit(op.reshape(const(weight), (4, 6))))

    return graphs(before, after, torch.ones(3, 5, 4))


@case("sink-moves")
def _(_: Target) -> Pair:
    weight, bias = const(np.ones((4, 6), np.float32)), const(np.ones(6, np.float32))

    def before(x: relax.Expr) -> relax.Expr:
        moved = emit(op.permute_dims(x, [1, 0, 2]))
        return op.add(emit(op.matmul(moved, weight)), bias)

    def after(x: relax.Expr) -> relax.Expr:
        return op.permute_dims(emit(op.add(emit(op.matmul(x, weight)), bias)), [1, 0, 2])

    return graphs(before, after, torch.ones(2, 3, 4))


@case("join-projections")
def _(_: Target) -> Pair:
    weights = [np.full((4, 6), i, np.float32) for i in (1, 2)]
    biases = [np.full(6, i, np.float32) for i in (3, 4)]

    def product(q: relax.Expr, k: relax.Expr) -> relax.Expr:
        return op.matmul(q, op.permute_dims(k))

    def before(x: relax.Expr) -> relax.Expr:
        pairs = zip(weights, biases, strict=True)
        return product(*(op.add(op.matmul(x, const(w)), const(b)) for w, b in pairs))

    def after(x: relax.Expr) -> relax.Expr:
        joined = op.matmul(x, const(np.concatenate(weights, axis=1)))
        joined = op.add(joined, const(np.concatenate(biases)))
        joined = emit(joined)
        return product(*(emit(op.strided_slice(joined, [1], [i], [i + 6])) for i in (0, 6)))

    return graphs(before, after, torch.ones(5, 4))


@case("narrow-results")
def _(_: Target) -> Pair:
    def after(x: relax.Expr) -> relax.Expr:
        return op.astype(kernel(topi.exp, x, name="exp"), "float32")

    return graphs(
        lambda x: op.nn.relu(after(x)),
        lambda x: op.astype(op.nn.relu(kernel(topi.exp, x, name="exp")), "float32"),
        torch.ones(3, 5).half(),
    )


@case("collapse-views")
def _(_: Target) -> Pair:
    def moved(x: relax.Expr) -> relax.Expr:
        return op.reshape(op.permute_dims(op.reshape(x, (3, 1, 5)), [1, 0, 2]), (15,))

    return graphs(
        lambda x: op.negative(moved(x)),
        lambda x: op.negative(op.reshape(x, (15,))),
        torch.ones(3, 5),
    )


@case("collapse-results")
def _(_: Target) -> Pair:
    def turned(x: relax.Expr) -> relax.Expr:
        return op.reshape(op.permute_dims(kernel(topi.exp, x, name="exp"), [1, 0]), (5,))

    return graphs(
        lambda x: op.negative(turned(x)),
        lambda x: op.negative(op.reshape(kernel(topi.exp, x, name="exp"), (5,))),
        torch.ones(1, 5),
    )


IMAGE = torch.ones(1, 8, 8, 64).half()


def _pooled(x: relax.Expr) -> relax.Expr:
    return op.nn.max_pool2d(x, 2, 2, layout="NHWC", out_layout="NHWC")


def _launching(target: Target, *, compiled: bool) -> tvm.IRModule:
    """A pooling as a kernel that a function of the host launches."""
    before = module(_pooled, IMAGE)
    (found,) = match.find(before["main"])
    config = Chooser(target, {})(found.unit)
    assert config is not None
    launch = None
    if compiled:
        (made,) = compile_many([Job(unit=found.unit, config=config, arch=target.arch)])
        assert not isinstance(made, Failure), made.reason
        launch = emitted.Launch(
            name=packed_name(made), threads=made.threads, grid=made.grid,
            shared_bytes=made.shared_bytes, hidden_pointers=made.hidden_pointers,
        )  # fmt: skip
    shapes = {"input": (1, 8, 8, 64), "output": (1, 4, 4, 64)}
    called = emitted.function(found.unit, config, shapes, launch)

    def launched(x: relax.Expr) -> relax.Expr:
        function = relax.BlockBuilder.current().add_func(called, emitted.hint(found.unit))
        return op.call_tir(function, [x], relax.TensorType((1, 4, 4, 64), "float16"))

    return module(launched, IMAGE)


@case("place-units")
def _(target: Target) -> Pair:
    return module(_pooled, IMAGE), _launching(target, compiled=False)


@case("share-buffers")
def _(target: Target) -> Pair:
    (found,) = match.find(module(_pooled, IMAGE)["main"])
    config = Chooser(target, {})(found.unit)
    assert config is not None
    narrow, wide = ((1, 4, 4, channels) for channels in (64, 128))

    def launched(
        x: relax.Expr, unit: Any, shape: tuple[int, ...], name: str = "pool", into: Any = None
    ) -> relax.Var:
        builder = relax.BlockBuilder.current()
        shapes = {"input": (1, 8, 8, 64), "output": shape}
        made = emitted.function(unit, config, shapes)
        function = builder.add_func(made, name)
        result = relax.TensorType(shape, "float16")
        if into is not None:
            return emit(op.call_tir_inplace(function, [x, into], [1], result))
        return emit(op.call_tir(function, [x], result))

    def before(x: relax.Expr, y: relax.Expr) -> relax.Expr:
        return op.concat([launched(v, found.unit, narrow) for v in (x, y)], 3)

    def after(x: relax.Expr, y: relax.Expr) -> relax.Expr:
        left, right = (replace(found.unit, output=View(pitch=128, offset=at)) for at in (0, 64))
        # the functions that they replace are still there while they are made
        return launched(y, right, wide, "pool2", launched(x, left, wide, "pool1"))

    return graphs(before, after, IMAGE, IMAGE)


@case("compile-units")
def _(target: Target) -> Pair:
    return _launching(target, compiled=False), _launching(target, compiled=True)


# ---- fuse, schedule ---------------------------------------------------------------------------


@case("spread-moves")
def _(_: Target) -> Pair:
    apart, opaque = {"op_pattern": 0}, {"op_pattern": 8}

    def cast(x: relax.Expr) -> relax.Expr:
        return kernel(topi.cast, x, "float16", name="cast", attrs=apart)

    def read(compute: Any, x: relax.Expr) -> relax.Expr:
        return kernel(compute, x, name="read", attrs=apart)

    def before(x: relax.Expr) -> relax.Expr:
        narrow = cast(x)
        both = read(topi.exp, narrow), read(topi.sin, narrow)
        return kernel(topi.add, *both, name="sum", attrs=opaque)

    def after(x: relax.Expr) -> relax.Expr:
        both = read(topi.exp, cast(x)), read(topi.sin, cast(x))
        return kernel(topi.add, *both, name="sum", attrs=opaque)

    return graphs(before, after, torch.ones(3, 5))


@case("write-in-place")
def _(_: Target) -> Pair:
    box = Box((0, 1), (1, 1), (16, 2))
    kept = copied_rows((box,), (16, 8))
    assert kept is not None
    compute = partial(boxes.copy_boxes, boxes=(box,), rows=kept)
    told = {boxes.BOXES: boxes.boxes_text((box,), kept)}

    def before(x: relax.Expr, u: relax.Expr) -> relax.Expr:
        y = kernel(topi.exp, x, name="exp")
        return kernel(compute, y, u, name="scatter_copy", attrs=told)

    def after(x: relax.Expr, u: relax.Expr) -> relax.Expr:
        builder = relax.BlockBuilder.current()
        y = kernel(topi.exp, x, name="exp")
        copying = builder.call_te(compute, y, u, primfunc_name_hint="copying", primfunc_attrs=told)
        writes = boxes.overwrite(builder.get()[copying.args[0]])
        return op.call_tir_inplace(builder.add_func(writes, "scatter_copy"), [y, u], 0, y.ty)

    return graphs(before, after, torch.ones(16, 8), torch.ones(16, 2))


def double(x: te.Tensor) -> te.Tensor:
    return te.compute(x.shape, lambda i, j: x[i, j] * 2.0, name="double")


@case("searched-schedules")
def _(_: Target) -> Pair:
    def two(x: relax.Var) -> relax.Expr:
        return kernel(double, kernel(lambda t: topi.add(t, 1.0), x, name="one"), name="double")

    before = module(two, torch.ones(7, 32))
    after = tvm.IRModule(dict(before.functions_items()), attrs=before.attrs)
    sch = s_tir.Schedule(before["double"])
    sch.vectorize(sch.get_loops(sch.get_sblock("double"))[-1])
    after.update_func(after.get_global_var("double"), finished("tuned", sch))
    assert sch.trace is not None
    found = Candidate(trace=traces.text(sch.trace))
    key = workload_of(before["double"])
    CHOICES["searched-schedules"] = {key: Choice(candidate=found, source="metaschedule")}
    return before, after


def _scheduled(target: Target, name: str) -> Pair:
    """A kernel as it is written, and as its rule leaves it."""
    before = module(lambda x: kernel(double, x, name="double"), torch.ones(7, 32))
    after = tvm.IRModule(dict(before.functions_items()), attrs=before.attrs)
    (rule,) = (r for r in (*cpu.RULES, *cuda.RULES) if r.name == name)
    with tvm.target.Target(targets.to_tvm(target), host={"kind": "llvm"}):
        sch = rule.schedule(before["double"], target)
    assert sch is not None
    after.update_func(after.get_global_var("double"), finished(name, sch))
    return before, after


@case("one-graph")
def _(_: Target) -> Pair:
    """The second input's kernel runs before the graph, the first output's after it."""

    def parts(x: relax.Expr, y: relax.Expr, order: str) -> relax.Expr:
        steps: dict[str, Callable[[], relax.Expr]] = {
            "a": lambda: kernel(topi.exp, x, name="exp"),
            "b": lambda: kernel(topi.tanh, made["a"], name="tanh"),
            "o": lambda: kernel(topi.sqrt, made["b"], name="sqrt"),
            "c": lambda: kernel(topi.exp, y, name="exp"),
            "p": lambda: kernel(topi.add, made["b"], made["c"], name="add"),
            "q": lambda: kernel(topi.erf, made["p"], name="erf"),
        }
        made: dict[str, relax.Expr] = {}
        for name in order:
            made[name] = steps[name]()
        return relax.Tuple([made["o"], made["q"]])

    inputs = torch.ones(3, 5), torch.ones(3, 5)
    return graphs(lambda x, y: parts(x, y, "abocpq"), lambda x, y: parts(x, y, "acbpoq"), *inputs)


@case("cpu-rules")
def _(target: Target) -> Pair:
    return _scheduled(target, "fallback")


@case("gpu-rules")
def _(target: Target) -> Pair:
    return _scheduled(target, "tir-elementwise")


@case("outside-graph")
def _(_: Target) -> Pair:
    kind, part = relax.TensorType((3, 5), "float32"), relax.ExternFunc("tvmscope.fallback.r")

    def before(x: relax.Expr) -> relax.Expr:
        soft = emit(relax.Call(part, [emit(op.negative(x))], ty_args=[kind]))
        return relax.Call(relax.ExternFunc("other"), [soft], ty_args=[kind])

    def after(x: relax.Expr) -> relax.Expr:
        builder, apart = relax.BlockBuilder.current(), relax.BlockBuilder()
        given = relax.Var("a0", kind)
        attrs = {"relax.force_pure": True}
        with apart.function("r", [given], attrs=attrs, private=True):
            apart.emit_func_output(apart.emit(relax.Call(part, [given], ty_args=[kind])))
        function = builder.add_func(apart.get()["r"], "fallback_r")
        soft = emit(relax.Call(function, [emit(op.negative(x))]))
        return relax.Call(relax.ExternFunc("other"), [soft], ty_args=[kind])

    return graphs(before, after, torch.ones(3, 5))
