"""Finds units in a graph: convolutions and products with their epilogues, attention, norms, pools.

Each finder takes the call of its anchor and returns a `Found`, or None if no kernel fits; the
operator is then left to TVM's own lowering.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from math import prod

import numpy as np
from tvm import relax

from tvmscope.compiler.units import attention, rows
from tvmscope.compiler.units.epilogues import Tail, follow
from tvmscope.compiler.units.found import Chain, Found, Operand
from tvmscope.compiler.units.graph import (
    Array,
    Graph,
    constant,
    dtype_of,
    name_of,
    shape_of,
    variables,
)
from tvmscope.compiler.units.views import trace
from tvmscope.cuda.rewrites import as_patches, with_channels
from tvmscope.cuda.units import ITEM_BYTES, Conv2d, GroupNorm, Math, Matmul, Matrix, Pool
from tvmscope.errors import UsageError

MATH: dict[str, dict[str, Math]] = {
    "conv2d": {"float32": "tf32x3"},
    "matmul": {"float32": "tf32x3"},
}
"""How float32 is multiplied: as three products in TF32, whose sum is close to float32."""
_DTYPES = ("float16", "bfloat16", "float32")
FEWEST_CHANNELS = 8
"""16 bytes of half precision: the widest load."""
_LOAD_BYTES = (4, 8, 16)
"""The sizes of asynchronous copies."""


def find(function: relax.Function, *, fused: bool = True) -> list[Found]:
    """Return all units of a function, which share no value; with their epilogues, if `fused`."""
    graph = Graph(function, fused=fused)
    taken: set[relax.Var] = set()
    found: list[Found] = []
    for finders in (_FIRST, _SECOND):
        live = graph.live({u.last: [v for o in u.operands.values() for v in _read(o)]
                           for u in found})  # fmt: skip
        for unit in _offer(graph, finders, taken, live):
            taken.update(unit.replaced)
            graph.hidden.update(unit.hidden)
            graph.needed.update(v for o in unit.operands.values() for v in _read(o))
            found.append(unit)
    return found


def _offer(
    graph: Graph, finders: dict[str, Finder], taken: set[relax.Var], live: set[relax.Var]
) -> Iterator[Found]:
    for binding in graph.bindings:
        call = graph.call(binding.var)
        finder = finders.get(name_of(call)) if call is not None else None
        if finder is None or call is None or binding.var in taken or binding.var not in live:
            continue
        if binding.var not in graph.varying:  # the compiler computes it, and needs code for that
            continue
        chain = Chain(graph=graph, taken=frozenset(taken), vars=(binding.var,))
        try:
            unit = finder(call, chain)
        except UsageError:  # no unit supports these shapes
            continue
        if unit is not None and not taken & set(unit.replaced):
            yield unit


def _read(operand: Operand) -> Iterator[relax.Var]:
    return iter(()) if isinstance(operand, np.ndarray) else variables(operand)


def _math(kind: str, dtype: str) -> Math:
    return MATH[kind].get(dtype, "tensor")


def _operands(tail: Tail, **more: Operand) -> dict[str, Operand]:
    given: dict[str, Operand] = dict(more)
    if tail.bias is not None:
        given["bias"] = np.ascontiguousarray(tail.bias)
    if tail.residual is not None:
        given["residual"] = tail.residual
    return given


def _conv2d(call: relax.Call, chain: Chain) -> Found | None:
    unit, weight = bare_conv2d(call), constant(call.args[1])
    if unit is None or weight is None:
        return None
    tail = follow(chain, unit.dtype)
    unit = replace(unit, epilogue=tail.epilogue)
    if (gated := _gated(unit, call, chain)) is not None:
        unit, inside, scaled, gate = gated
        operands = _operands(tail, input=scaled, gate=gate, weight=weight)
        replaced = (inside, *tail.chain.vars)
        return Found(unit=unit, operands=operands, last=tail.chain.last, replaced=replaced)
    unit, data, weight = _suited(unit, call.args[0], weight)
    operands = _operands(tail, input=data, weight=weight)
    return Found(unit=unit, operands=operands, last=tail.chain.last, replaced=tail.chain.vars)


def _gated(
    unit: Conv2d, call: relax.Call, chain: Chain
) -> tuple[Conv2d, relax.Var, relax.Expr, relax.Expr] | None:
    """Return a 1x1 convolution that multiplies its input by a factor for each image and channel, as
    squeeze and excitation have it; with that product, if nothing else reads it, and its factors."""
    graph, product = chain.graph, call.args[0]
    scaled = graph.call(product, "multiply") if graph.fused else None
    if scaled is None or not isinstance(product, relax.Var) or product in chain.taken:
        return None
    if graph.only_reader(product) != chain.vars[0] or unit.c < FEWEST_CHANNELS:
        return None
    for data, gate in (scaled.args, reversed(scaled.args)):
        shapes = shape_of(data), shape_of(gate)
        wanted = shape_of(product), (unit.n, 1, 1, unit.c)
        known = isinstance(data, relax.Var) and isinstance(gate, relax.Var)
        if known and shapes == wanted and dtype_of(data) == dtype_of(gate) == unit.dtype:
            try:
                return replace(unit, gated=True), product, data, gate
            except UsageError:  # its window is larger
                return None
    return None


def bare_conv2d(call: relax.Call) -> Conv2d | None:
    """Return the unit of a convolution alone; None if no kernel takes its operands."""
    data, weight = call.args[0], constant(call.args[1])
    dtype, attrs = dtype_of(data), call.attrs
    if weight is None or dtype not in _DTYPES or str(attrs.data_layout) != "NHWC":
        return None
    n, h, w, c = shape_of(data)
    top, left, bottom, right = (int(p) for p in attrs.padding)
    return Conv2d(
        dtype=dtype,  # type: ignore[arg-type]  # one of _DTYPES
        n=n, h=h, w=w, c=c,
        oc=weight.shape[0], r=weight.shape[1], s=weight.shape[2],
        stride=(int(attrs.strides[0]), int(attrs.strides[1])),
        padding=(top, left, bottom, right),
        dilation=(int(attrs.dilation[0]), int(attrs.dilation[1])),
        groups=int(attrs.groups),
        math=_math("conv2d", dtype),
    )  # fmt: skip


def _suited(unit: Conv2d, data: relax.Expr, weight: Array) -> tuple[Conv2d, relax.Expr, Array]:
    """Adapt a convolution to the templates: few channels become a row of a patch, or are padded."""
    patches = as_patches(unit)
    if patches is not None and unit.c < FEWEST_CHANNELS:
        return patches, data, weight.reshape(unit.oc, unit.r, 1, unit.s * unit.c)
    if unit.groups != 1 or unit.c >= FEWEST_CHANNELS:
        return unit, data, weight
    more = loaded_channels(unit.c, unit.dtype) - unit.c
    if more == 0:
        return unit, data, weight
    padded = relax.op.nn.pad(data, (0, 0, 0, 0, 0, 0, 0, more))
    weight = np.pad(weight, ((0, 0), (0, 0), (0, 0), (0, more)))
    return with_channels(unit, unit.c + more), padded, weight


def loaded_channels(channels: int, dtype: str) -> int:
    """Return the channels of the smallest load that holds so many; with wider ones, a stem of
    three channels in half precision took up to 1.8 times as long. A single channel gets another
    one: alone it would make the convolution a depthwise one, which is slower."""
    item = ITEM_BYTES[dtype]
    fitting = (size // item for size in _LOAD_BYTES if size >= max(channels, 2) * item)
    return next(fitting, FEWEST_CHANNELS)


def _weighted(call: relax.Call, chain: Chain) -> Found | None:
    data, weight = call.args[0], constant(call.args[1])
    dtype, shape = dtype_of(data), shape_of(data)
    if weight is None or weight.ndim != 2 or dtype not in _DTYPES or not shape:
        return None
    tail = follow(chain, dtype)
    unit = Matmul(
        dtype=dtype,  # type: ignore[arg-type]  # one of _DTYPES
        m=prod(shape[:-1]),
        n=weight.shape[1],
        k=weight.shape[0],
        math=_math("matmul", dtype),
        epilogue=tail.epilogue,
    )
    operands = _operands(tail, input=data, weight=weight)
    return Found(unit=unit, operands=operands, last=tail.chain.last, replaced=tail.chain.vars)


def _product(call: relax.Call, chain: Chain) -> Found | None:
    """Match a product of two computed matrices, each read in place."""
    if constant(call.args[1]) is not None and len(shape_of(call.args[1])) == 2:
        return _weighted(call, chain)
    graph, dtype = chain.graph, dtype_of(call.args[0])
    shapes = [shape_of(a) for a in call.args]
    if dtype not in _DTYPES or dtype_of(call.args[1]) != dtype or min(map(len, shapes)) < 2:
        return None
    left, right = shapes
    batch = left[:-2]
    if right[:-2] != batch or len(batch) > 2:
        return None
    a, b = (trace(graph, x, dtype=dtype, scaled=True) for x in call.args)
    if a is None or b is None:
        return None
    tail = follow(chain, dtype)
    if tail.epilogue.bias:  # the kernel has one for weights alone
        tail = Tail(chain=chain, dtype=dtype)
    outer, inner = (1,) * (2 - len(batch)) + batch
    unit = Matmul(
        dtype=dtype,  # type: ignore[arg-type]  # one of _DTYPES
        m=left[-2], n=right[-1], k=left[-1],
        batch=(outer, inner),
        a=_matrix(a.strides, a.offset),
        b=_matrix(b.strides, b.offset),
        weight=False,
        scale=a.scale * b.scale,
        math=_math("matmul", dtype),
        epilogue=tail.epilogue,
    )  # fmt: skip
    operands = _operands(tail, input=a.base, second=b.base)
    return Found(unit=unit, operands=operands, last=tail.chain.last, replaced=tail.chain.vars)


def _matrix(strides: tuple[int, ...], offset: int) -> Matrix:
    outer, inner, row, column = (0,) * (4 - len(strides)) + strides
    return Matrix(row=row, column=column, outer=outer, inner=inner, offset=offset)


def _group_norm(call: relax.Call, chain: Chain) -> Found | None:
    """Match the norm of groups of channels, with a bias that includes the epilogue's."""
    data, attrs = call.args[0], call.attrs
    shape, dtype = shape_of(data), dtype_of(data)
    scale, bias = (constant(a) for a in call.args[1:3])
    over = [int(attrs.channel_axis), *(int(a) for a in attrs.axes)]
    if len(shape) != 4 or over != [3, 1, 2] or dtype not in _DTYPES or dtype_of(call) != dtype:
        return None
    if scale is None or bias is None or not (attrs.center and attrs.scale):
        return None
    chain, factor = _factor(chain, shape[3])
    scale, own = (a.astype(np.float32) * factor for a in (scale, bias))
    tail = follow(chain, dtype)
    unit = GroupNorm(
        dtype=dtype,  # type: ignore[arg-type]  # one of _DTYPES
        n=shape[0],
        pixels=shape[1] * shape[2],
        c=shape[3],
        groups=int(attrs.num_groups),
        epsilon=float(attrs.epsilon),
        epilogue=replace(tail.epilogue, bias=True),
    )
    tail = replace(tail, bias=own if tail.bias is None else own + tail.bias)
    operands = _operands(tail, input=data, scale=scale)
    return Found(unit=unit, operands=operands, last=tail.chain.last, replaced=tail.chain.vars)


def _factor(chain: Chain, channels: int) -> tuple[Chain, Array | float]:
    """Return the chain with a following product with one number per channel, and these numbers."""
    reader = chain.next() if chain.graph.fused else None
    call = chain.graph.call(reader, "multiply") if reader is not None else None
    if reader is None or call is None or shape_of(call) != shape_of(chain.last):
        return chain, 1.0
    array = constant(call.args[1] if call.args[0] == chain.last else call.args[0])
    if array is None or array.shape[-1:] != (channels,) or array.size != channels:
        return chain, 1.0
    return chain.then(reader), array.astype(np.float32).reshape(channels)


def _max_pool(call: relax.Call, chain: Chain) -> Found | None:
    return _pool(call, chain, "max")


def _mean_pool(call: relax.Call, chain: Chain) -> Found | None:
    """Match averages in any precision, with the cast before them: kernels sum in float32."""
    return _pool(call, chain, "mean")


def _pool(call: relax.Call, chain: Chain, form: str) -> Found | None:
    attrs = call.attrs
    data, replaced = _stored(call, chain) if form == "mean" else (call.args[0], chain.vars)
    shape, dtype = shape_of(data), dtype_of(data)
    plain = all(int(d) == 1 for d in attrs.dilation)
    if str(attrs.layout) != "NHWC" or dtype not in _DTYPES or len(shape) != 4 or not plain:
        return None
    n, h, w, c = shape
    top, left, bottom, right = (int(p) for p in attrs.padding)
    unit = Pool(
        dtype=dtype,  # type: ignore[arg-type]  # one of _DTYPES
        n=n, h=h, w=w, c=c,
        form=form,  # type: ignore[arg-type]  # max or mean
        r=int(attrs.pool_size[0]), s=int(attrs.pool_size[1]),
        stride=(int(attrs.strides[0]), int(attrs.strides[1])),
        padding=(top, left, bottom, right),
        count_padding=bool(attrs.count_include_pad),
        round_up=bool(attrs.ceil_mode),
    )  # fmt: skip
    if (n, unit.p, unit.q, c) != shape_of(call):
        return None  # TVM rounds the output's size differently
    return Found(unit=unit, operands={"input": data}, last=chain.last, replaced=replaced)


def _global_mean(call: relax.Call, chain: Chain) -> Found | None:
    """Match a mean over the pixels of an image, in any precision, with the casts around it."""
    data, replaced = _stored(call, chain)
    shape = shape_of(data)
    axes = sorted(int(a) % len(shape) for a in call.attrs.axis or ()) if shape else []
    if len(shape) != 4 or axes != [1, 2] or dtype_of(data) not in _DTYPES:
        return None
    n, h, w, c = shape
    unit = Pool(dtype=dtype_of(data), n=n, h=h, w=w, c=c, form="mean", r=h, s=w)  # type: ignore[arg-type]  # one of _DTYPES
    return Found(
        unit=unit,
        operands={"input": data},
        last=chain.last,
        replaced=replaced,
        written=(n, 1, 1, c),
    )


def _stored(call: relax.Call, chain: Chain) -> tuple[relax.Expr, tuple[relax.Var, ...]]:
    """Return a call's operand as it is stored, before a cast, and the values that are replaced."""
    graph, data = chain.graph, call.args[0]
    cast = graph.call(data, "astype")
    if cast is None or cast.args[0] in graph.hidden or dtype_of(cast.args[0]) not in _DTYPES:
        return data, chain.vars
    alone = isinstance(data, relax.Var) and graph.only_reader(data) == chain.last
    inside = (data,) if alone and data not in chain.taken else ()
    return cast.args[0], (*inside, *chain.vars)


def _attention(call: relax.Call, chain: Chain) -> Found | None:
    return attention.match(call, chain)


Finder = Callable[[relax.Call, Chain], Found | None]
_FIRST: dict[str, Finder] = {
    "matmul": _attention, "mean": _global_mean, "nn.avg_pool2d": _mean_pool,
}  # fmt: skip
"""Tried before the products that attention consists of, and before a cast that a mean includes."""
_SECOND: dict[str, Finder] = {
    "nn.conv2d": _conv2d,
    "matmul": _product,
    "nn.layer_norm": rows.layer_norm,
    "nn.log_softmax": rows.softmax,
    "nn.softmax": rows.softmax,
    "power": rows.length_norm,
    "rsqrt": rows.rms_norm,
    "sqrt": rows.root,
    "nn.group_norm": _group_norm,
    "nn.max_pool2d": _max_pool,
}
