"""Moves pixel shuffles after elementwise operators, which a convolution's kernel then computes.

    relu(shuffle(conv(x)) + bias)  ->  shuffle(relu(conv(x) + bias'))

A shuffle here is reshape(permute(reshape(x))) of an image, perhaps cropped: PixelShuffle, depth to
space, and what transposed convolutions become. Every element of it comes from one channel, so that
`bias'` has the value of each source channel's result. A shuffle that others read too stays.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import tvm
from tvm import relax

from tvmscope.compiler.graph.rewrite import (
    Handler,
    Rewriter,
    bound_call,
    is_scalar,
    rewrite_calls,
    static_shape,
)
from tvmscope.compiler.rewrites.cuda.nhwc_moves import ELEMENTWISE, groups
from tvmscope.compiler.rewrites.cuda.nhwc_twins import axes_of
from tvmscope.compiler.units.graph import Graph, constant, scalar

_BINARY = ("add", "subtract", "multiply", "divide", "maximum", "minimum")
_CHANNEL = 1


def sink_shuffles() -> tvm.transform.Pass:
    """Return the pass."""

    @tvm.transform.module_pass(opt_level=0, name="SinkShuffles")
    def transform(module: tvm.IRModule, _: Any) -> tvm.IRModule:
        sink = partial(_sink, Graph(module["main"]))
        handlers: dict[str, Handler] = dict.fromkeys(ELEMENTWISE, sink)
        handlers |= {f"relax.{name}": sink for name in _BINARY}
        return rewrite_calls("SinkShuffles", handlers)(module)

    return transform


def _sink(graph: Graph, rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    at = next((i for i, a in enumerate(call.args) if isinstance(a, relax.Var)), None)
    steps = _shuffle(graph, rewriter, call.args[at]) if at is not None else None
    if steps is None:
        return None
    args: list[relax.Expr] = []
    for i, arg in enumerate(call.args):
        given = steps[-1].args[0] if i == at else _by_source(arg, steps)
        if given is None:
            return None
        args.append(given)
    value = rewriter.emit(relax.Call(call.op, args, call.attrs))
    for step in reversed(steps[1:]):
        value = rewriter.emit(relax.Call(step.op, [value, *step.args[1:]], step.attrs))
    return relax.Call(steps[0].op, [value, *steps[0].args[1:]], steps[0].attrs)


def _shuffle(graph: Graph, rewriter: Rewriter, value: relax.Expr) -> list[relax.Call] | None:
    """Return the operators of the shuffle that ends in `value`, the last first."""
    steps: list[relax.Call] = []
    if (crop := bound_call(rewriter, value, "strided_slice")) is not None:
        if not _read_once(graph, value) or not _keeps_channels(crop):
            return None
        steps.append(crop)
        value = crop.args[0]
    for name in ("reshape", "permute_dims", "reshape"):
        call = bound_call(rewriter, value, name)
        if call is None or not _read_once(graph, value):
            return None
        steps.append(call)
        value = call.args[0]
    return steps if len(static_shape(value) or ()) == 4 else None


def _read_once(graph: Graph, value: relax.Expr) -> bool:
    """Whether the value has one reader; one that was made here has."""
    assert isinstance(value, relax.Var)
    return value not in graph.order or graph.only_reader(value) is not None


def _keeps_channels(crop: relax.Call) -> bool:
    axes = crop.args[1].fields if isinstance(crop.args[1], relax.Tuple) else ()
    found = [scalar(a) for a in axes]
    return bool(found) and all(axis in (2, 3) for axis in found)


def _by_source(value: relax.Expr, steps: list[relax.Call]) -> relax.Expr | None:
    """Return an operand with the values of the source's channels; None if it has others."""
    array = constant(value)
    if is_scalar(value) or array is None:
        return value if not isinstance(value, relax.Var) else None
    sources = _sources(steps)
    if sources is None or array.size != len(sources) or array.shape[-3:-2] != (len(sources),):
        return None
    held = np.empty((1, sources.size, 1, 1), array.dtype)
    held[0, sources, 0, 0] = array.reshape(-1, 1)
    return relax.const(held)


def _sources(steps: list[relax.Call]) -> np.ndarray[Any, Any] | None:
    """Return the source channels of each channel; None if a channel also has several pixels."""
    merge, order, split = steps[-3:]
    pieces, axes = static_shape(split), axes_of(order)
    source = groups(static_shape(split.args[0]), pieces)
    merged = groups(static_shape(merge), static_shape(order))
    if source is None or merged is None or pieces is None:
        return None
    own, wanted = source[_CHANNEL], [axes[j] for j in merged[_CHANNEL]]
    wanted = [p for p in wanted if pieces[p] != 1]
    if not set(wanted) <= set(own):
        return None
    rest = [p for p in own if p not in wanted]
    channels = np.arange(int(np.prod([pieces[p] for p in own]))).reshape([pieces[p] for p in own])
    turned = channels.transpose([own.index(p) for p in (*wanted, *rest)])
    return turned.reshape((static_shape(merge) or ())[_CHANNEL], -1)
