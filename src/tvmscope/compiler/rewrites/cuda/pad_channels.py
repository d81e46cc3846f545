"""Gives convolutions inputs of whole 16-byte loads: tensors get a few more channels.

    conv(relu(conv(x, w) + b), v)    with 27 channels between
->  conv(relu(conv(x, w') + b'), v') with 32: w' and b' write zeros, v' ignores them

The additional channels have finite values, which the zeros in v' cancel. Where every reader takes
them, the first convolution writes them; elsewhere a tensor is padded before its reader. Both are
done only where the cost model expects the kernels' times to become less in sum.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from tvmscope.compiler.graph.rewrite import replace_binding
from tvmscope.compiler.units.graph import Array, Graph, constant, name_of, scalar, shape_of
from tvmscope.compiler.units.match import FEWEST_CHANNELS, bare_conv2d, loaded_channels
from tvmscope.cuda.cost import estimates
from tvmscope.cuda.gpus import Gpu
from tvmscope.cuda.rewrites import as_patches, with_channels, with_outputs
from tvmscope.cuda.units import ITEM_BYTES, Conv2d
from tvmscope.errors import UsageError

_LOAD_BYTES = 16
_CHANNELS = 3
_UNARY = ("nn.relu", "nn.relu6", "nn.gelu", "nn.gelu_tanh", "nn.silu", "nn.leakyrelu", "sigmoid",
          "tanh", "clip", "astype", "nn.max_pool2d", "nn.avg_pool2d", "image.resize2d")  # fmt: skip
"""Operators that treat channels alike, and give finite values for additional ones."""
_NEUTRAL = {"add": 0, "subtract": 0, "multiply": 1, "maximum": 0, "minimum": 0}
"""Operators of two operands, and the number that extends their constants."""
_MOVING = ("permute_dims", "concat")
"""Operators whose own kernel pads its result."""


@dataclass
class _Plan:
    wide: set[relax.Var] = field(default_factory=set)
    """Values that are computed with more channels."""
    readers: set[relax.Var] = field(default_factory=set)
    """Convolutions whose input has more channels."""


def pad_channels(gpu: Gpu) -> tvm.transform.Pass:
    """Return the pass."""

    @tvm.transform.module_pass(opt_level=0, name="PadChannels")
    def transform(module: tvm.IRModule, _: Any) -> tvm.IRModule:
        plan = _plan(Graph(module["main"]), gpu)
        if not plan.readers:
            return module
        padder = _Padder(module, plan)
        padded = padder.visit_expr(module["main"])
        padder.builder_.update_func(module.get_global_var("main"), padded)
        return relax.transform.DeadCodeElimination()(padder.builder_.get())

    return transform


def _plan(graph: Graph, gpu: Gpu) -> _Plan:
    units = dict(_convolutions(graph))
    odd = {v: _operands(graph, v) for v, unit in units.items() if _is_odd(unit)}
    read = {v: given[0] for v, given in odd.items() if given}
    wide = _wide(graph, units, read)
    plan, time = _Plan(), partial(_time, gpu, {})
    copied = {v: _padding_us(graph, gpu, units[v], d) for v, d in read.items()}
    padded = {v: time(_padded(units[v], True, False)) + copied[v] for v in read}
    # fewer channels than a load has are padded with the unit, to the smallest one
    alone = {v: time(_loaded(u)) + copied[v] if v in read and _loaded(u) != u else time(u)
             for v, u in units.items()}  # fmt: skip
    for part in _parts(graph, wide, read):
        convs = [v for v in part if v in units]
        more = [_padded(units[v], read.get(v) in wide, v in wide) for v in convs]
        if sum(map(time, more)) < sum(alone[v] for v in convs):
            plan.wide |= part & wide
            plan.readers |= {v for v in convs if read.get(v) in wide}
    for var in read:
        if read[var] not in wide and padded[var] < alone[var]:
            plan.readers.add(var)
    return plan


def _convolutions(graph: Graph) -> Iterator[tuple[relax.Var, Conv2d]]:
    for binding in graph.bindings:
        call = graph.call(binding.var, "nn.conv2d")
        try:
            unit = bare_conv2d(call) if call is not None else None
        except UsageError:  # no unit supports these shapes
            continue
        if unit is not None and unit.groups == 1:
            yield binding.var, unit


def _more(channels: int, dtype: str) -> int:
    """Return the channels that fill whole loads."""
    step = _LOAD_BYTES // ITEM_BYTES[dtype]
    return -(-channels // step) * step


def _is_odd(unit: Conv2d) -> bool:
    return unit.c != _more(unit.c, unit.dtype) and not (_is_few(unit) and as_patches(unit))


def _is_few(unit: Conv2d) -> bool:
    return unit.c < FEWEST_CHANNELS


def _loaded(unit: Conv2d) -> Conv2d:
    more = loaded_channels(unit.c, unit.dtype)
    return with_channels(unit, more) if _is_few(unit) and more != unit.c else unit


def _padded(unit: Conv2d, inputs: bool, outputs: bool) -> Conv2d:
    if inputs:
        unit = with_channels(unit, _more(unit.c, unit.dtype))
    return with_outputs(unit, _more(unit.oc, unit.dtype)) if outputs else unit


def _operands(graph: Graph, var: relax.Var) -> list[relax.Var]:
    """Return the tensors that an operator reads, without constants and numbers."""
    call = graph.call(var)
    return [a for a in call.args if isinstance(a, relax.Var)] if call is not None else []


def _wide(
    graph: Graph, units: dict[relax.Var, Conv2d], read: dict[relax.Var, relax.Var]
) -> set[relax.Var]:
    """Return the values between convolutions that can have more channels: each is computed by a
    convolution or from others, and read by convolutions or for others."""
    found: set[relax.Var] = set()
    left = list(read.values())
    while left:
        var = left.pop()
        inside = isinstance(var, relax.DataflowVar) and var not in found
        if inside and (var in units or _passes(graph, var)):
            found.add(var)
            left += [] if var in units else _operands(graph, var)
    while True:
        kept = {v for v in found if _closed(graph, v, found, units, read)}
        if kept == found:
            return found
        found = kept


def _closed(
    graph: Graph,
    var: relax.Var,
    found: set[relax.Var],
    units: dict[relax.Var, Conv2d],
    read: dict[relax.Var, relax.Var],
) -> bool:
    if var not in units and not found.issuperset(_operands(graph, var)):
        return False
    readers = graph.readers[var]
    return all(
        r is not None and (read.get(r) == var or (r in found and r not in units)) for r in readers
    )


def _passes(graph: Graph, var: relax.Var) -> bool:
    """Whether an operator treats channels alike, with constants that more channels can have."""
    call, shape = graph.call(var), shape_of(var)
    if call is None or len(shape) != _CHANNELS + 1:
        return False
    if any(shape_of(a) != shape for a in _operands(graph, var)):
        return name_of(call).startswith(("nn.", "image.")) and _keeps_channels(graph, var)
    if name_of(call) in _NEUTRAL:
        return all(
            isinstance(a, relax.Var) or _extended(a, 0, shape) is not None for a in call.args
        )
    return _keeps_channels(graph, var)


def _keeps_channels(graph: Graph, var: relax.Var) -> bool:
    call = graph.call(var, *_UNARY)
    layout = str(getattr(call.attrs, "layout", "NHWC")) if call is not None else ""
    return call is not None and layout == "NHWC" and len(_operands(graph, var)) == 1


def _extended(value: relax.Expr, neutral: float, shape: tuple[int, ...]) -> relax.Expr | None:
    """Return a constant operand with more channels; None if it is none."""
    array, channels = constant(value), shape[_CHANNELS]
    if scalar(value) is not None and (array is None or array.shape[-1:] in ((), (1,))):
        return value
    if array is None or array.shape[-1] != channels:
        return None
    return relax.const(_with_last(array, _more(channels, str(array.dtype)), neutral))


def _with_last(array: Array, extent: int, value: float = 0.0) -> Array:
    """Return the array with a longer last axis."""
    more = [(0, 0)] * (array.ndim - 1) + [(0, extent - array.shape[-1])]
    return np.pad(array, more, constant_values=array.dtype.type(value))


def _parts(
    graph: Graph, wide: set[relax.Var], read: dict[relax.Var, relax.Var]
) -> Iterator[set[relax.Var]]:
    """Yield the wide values and their readers in groups that depend on each other."""
    parts: list[set[relax.Var]] = []
    for var in [b.var for b in graph.bindings if b.var in wide or read.get(b.var) in wide]:
        near = {var, *(v for v in _operands(graph, var) if v in wide)}
        touching = [p for p in parts if p & near]
        parts = [p for p in parts if not p & near]
        parts.append(near.union(*touching))
    yield from parts


def _time(gpu: Gpu, known: dict[str, float], unit: Conv2d) -> float:
    """Return the unit's estimated time."""
    if unit.key not in known:
        known[unit.key] = min((e.us for e in estimates(unit, gpu)), default=inf)
    return known[unit.key]


def _padding_us(graph: Graph, gpu: Gpu, unit: Conv2d, data: relax.Var) -> float:
    """Return the time to pad a convolution's input: none in a kernel that moves it anyway."""
    if graph.call(data, *_MOVING) is not None and graph.only_reader(data) is not None:
        return 0.0
    read = unit.tensors[0].size_bytes
    return gpu.launch_us + gpu.latency_us + 2 * read / gpu.hbm_bytes_per_us


@mutator
class _Padder(PyExprMutator):
    def __init__(self, module: tvm.IRModule, plan: _Plan) -> None:
        super().__init__(module)
        self.plan = plan
        self.wide: dict[relax.Expr, relax.Var] = {}

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        """Compute wide values, and convolutions that read them."""
        var, value = binding.var, binding.value
        if not isinstance(value, relax.Call):
            super().visit_var_binding_(binding)
        elif var in self.plan.wide:
            self.wide[var] = self.builder_.emit(self._widened(var, value), var.name)
        elif var in self.plan.readers:
            replace_binding(self, var, self._convolution(var, value))
        else:
            super().visit_var_binding_(binding)

    def _widened(self, var: relax.Var, call: relax.Call) -> relax.Expr:
        if name_of(call) == "nn.conv2d":
            return self._convolution(var, call)
        neutral, shape = _NEUTRAL.get(name_of(call)), shape_of(var)
        args = []
        for arg in call.args:
            given: relax.Expr | None = self.wide.get(arg) if isinstance(arg, relax.Var) else None
            if given is None and neutral is not None:
                given = _extended(arg, neutral, shape)
            args.append(arg if given is None else given)
        return relax.Call(call.op, args, call.attrs, call.ty_args)

    def _convolution(self, var: relax.Var, call: relax.Call) -> relax.Expr:
        data, weight = call.args[0], constant(call.args[1])
        assert weight is not None  # or there would be no unit
        if var in self.plan.wide:
            outputs = _more(weight.shape[0], str(weight.dtype)) - weight.shape[0]
            weight = np.pad(weight, ((0, outputs), (0, 0), (0, 0), (0, 0)))
        given = self.visit_expr(data)
        if var in self.plan.readers:
            inputs = _more(weight.shape[-1], str(weight.dtype))
            weight = _with_last(weight, inputs)
            known = self.wide.get(data)
            given = self._behind(data, given, inputs) if known is None else known
        return relax.Call(call.op, [given, relax.const(weight)], call.attrs, call.ty_args)

    def _behind(self, data: relax.Expr, given: relax.Expr, channels: int) -> relax.Var:
        """Return the padded value of one that is not computed with more channels."""
        more = channels - shape_of(data)[_CHANNELS]
        padded = relax.op.nn.pad(given, (0, 0, 0, 0, 0, 0, 0, more))
        self.wide[data] = self.builder_.emit(padded)
        return self.wide[data]
