"""Runs convolution networks on channel blocks (NCHW16c) from end to end.

Rules, for float tensors of four static dimensions:
- a convolution with constant weights (dense, grouped or depthwise) takes blocked or plain data and
  returns blocks; its weights are packed here, and channels are padded with zeros to whole blocks
- pooling, means over the image, channel concatenation and elementwise operators stay in blocks
- what only moves channels (slices, shuffles, concatenations that leave blocks unfilled) is followed
  by index and copied by the first that reads it, or not at all: see `channel_picks`
- anything else gets plain data; a value is converted at most once in each direction
Padded channels have finite values that are never used: they are multiplied by zero weights.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import tvm
from tvm import relax
from tvm.ir.expr import GenericConst

from tvmscope.compiler.cost.tiles import CHANNEL_BLOCK
from tvmscope.compiler.graph.rewrite import flat, is_scalar, operator_name, static_shape, with_vars
from tvmscope.compiler.kernels import blocked as blocked_ops
from tvmscope.compiler.kernels.channels import pick_channels
from tvmscope.compiler.kernels.convolutions import Convolution, choose, read
from tvmscope.compiler.kernels.packing import block_constant
from tvmscope.compiler.rewrites.cpu import channel_picks
from tvmscope.compiler.rewrites.cpu.channel_picks import Picks
from tvmscope.compiler.tunable.knobs import Knobs
from tvmscope.core.target import Target

UNARY = frozenset(
    f"relax.{name}"
    for name in ("nn.relu", "nn.silu", "nn.gelu", "nn.gelu_tanh", "nn.leakyrelu", "sigmoid", "tanh",
                 "clip", "abs", "negative", "nn.relu6", "astype")
)  # fmt: skip
"""Operators that map the zeros of padded channels to finite values."""
BINARY = frozenset(
    f"relax.{name}" for name in ("add", "subtract", "multiply", "maximum", "minimum")
)
POOLS = frozenset({"relax.nn.max_pool2d", "relax.nn.avg_pool2d"})
BLOCKED_LAYOUT = f"NCHW{CHANNEL_BLOCK}c"


@dataclass
class _Value:
    """A value in either form; the missing form is made on demand."""

    plain: relax.Expr | None
    blocked: relax.Expr | None = None
    channels: int = 0
    picks: Picks | None = None
    """Where its channels lie, of a value that only moves them."""
    parts: list[Picks] | None = None
    """Of a tuple, those of its fields."""
    moved: relax.Expr | None = None
    """What moves them in the graph, and makes the plain form."""
    name: str = ""


class _Rewriter:
    def __init__(
        self, module: tvm.IRModule, target: Target, winograd: bool, moves: bool, knobs: Knobs
    ) -> None:
        self.function = module["main"]
        self.winograd = winograd
        self.moves = moves
        self.knobs = knobs
        self.target = target
        others = {v: f for v, f in module.functions_items() if v.name_hint != "main"}
        self.builder = relax.BlockBuilder(tvm.IRModule(others, attrs=module.attrs))
        self.values: dict[relax.Expr, _Value] = {}
        self.changed = False

    def run(self) -> tvm.IRModule:
        """Return the module with the rewritten function."""
        params = list(self.function.params)
        self.values = {p: _Value(p) for p in params}
        (block,) = self.function.body.blocks
        with self.builder.function("main", params, attrs=dict(self.function.attrs)):
            with self.builder.dataflow():
                for binding in block.bindings:
                    self.bind(binding)
                result = self.builder.emit_output(self.plain_expr(self.function.body.body))
            self.builder.emit_func_output(result)
        return self.builder.get()

    def bind(self, binding: relax.Binding) -> None:
        """Rewrite one binding; its replacement gets its name."""
        self.name = binding.var.name
        value = binding.value
        rewritten = self.move(value) if self.moves else None
        if rewritten is None and isinstance(value, relax.Call):
            rewritten = self.rewrite(value)
        if rewritten is None:
            rewritten = _Value(self.emit(self.plain_expr(value)))
        else:
            self.changed = True
        self.values[binding.var] = rewritten

    def emit(self, value: relax.Expr) -> relax.Var:
        return self.builder.emit(value, name_hint=self.name)

    # ---- forms ------------------------------------------------------------------------------

    def plain_expr(self, value: relax.Expr) -> relax.Expr:
        """Return an expression with every variable in its plain form."""
        return with_vars(value, self.plain)

    def plain(self, var: relax.Var) -> relax.Expr:
        found = self.values.get(var)
        if found is None:
            return var
        if found.plain is None and found.blocked is not None:
            found.plain = self.unblock(found.blocked, found.channels)
        elif found.plain is None:
            assert found.moved is not None
            found.plain = self.builder.emit(self.plain_expr(found.moved), name_hint=found.name)
        return found.plain

    def unblock(self, data: relax.Expr, channels: int) -> relax.Expr:
        shape = _shape(data)
        if shape[2:4] == (1, 1) and channels % CHANNEL_BLOCK == 0:
            return self.emit(relax.op.reshape(data, (shape[0], channels, 1, 1)))
        return self.emit(
            self.builder.call_te(
                blocked_ops.from_blocks, data, channels, primfunc_name_hint="from_blocks"
            )
        )

    def blocked(self, value: relax.Expr) -> relax.Expr | None:
        """Return the blocked form of a 4-D value, made if needed; None if there cannot be one."""
        if isinstance(value, GenericConst):
            return block_constant(value)
        found = self.values.get(value)
        if found is None:
            return None
        if found.blocked is None and found.picks is not None:
            found.blocked = self.picked(found.picks, found.name)
        if found.blocked is None:
            assert found.plain is not None
            shape = _shape(found.plain)
            if len(shape) != 4:
                return None
            found.blocked = self.emit(
                self.builder.call_te(
                    blocked_ops.to_blocks, found.plain, primfunc_name_hint="to_blocks"
                )
            )
            found.channels = shape[1]
        return found.blocked

    def picked(self, picks: Picks, name: str) -> relax.Expr:
        """A copy of the channels, or their source where that is the same."""
        if len(picks.sources) == 1 and list(picks.at) == list(range(len(picks.at))):
            (source,) = picks.sources
            if _shape(source)[1] == -(-len(picks.at) // CHANNEL_BLOCK):
                return source
        compute = partial(pick_channels, picks=[int(channel) for channel in picks.at])
        call = self.builder.call_te(compute, *picks.sources, primfunc_name_hint="pick_channels")
        return self.builder.emit(call, name_hint=name)

    def is_blocked(self, value: relax.Expr) -> bool:
        if not isinstance(value, relax.Var) or value not in self.values:
            return False
        found = self.values[value]
        held = found.blocked is not None or (found.picks is not None and found.picks.is_image)
        return held and len(_shape(value)) == 4

    def in_blocks(self, value: relax.Expr) -> relax.Expr:
        """The blocked form, where it is known that there is one."""
        form = self.blocked(value)
        assert form is not None
        return form

    # ---- channels that only move ------------------------------------------------------------

    def move(self, value: relax.Expr) -> _Value | None:
        """The value of what only moves channels; None for anything else."""
        if isinstance(value, relax.TupleGetItem):
            divided = self.values.get(value.tuple_value)
            parts = divided.parts if divided is not None else None
            return self.follow(value, parts[value.index]) if parts is not None else None
        if not isinstance(value, relax.Call) or not value.args:
            return None
        if operator_name(value) == "relax.concat":
            return self.join(value)
        given = self.picks(value.args[0])
        if given is None:
            return None
        if operator_name(value) == "relax.split":
            parts = channel_picks.divided(value, given)
            return _Value(None, parts=parts, moved=value, name=self.name) if parts else None
        found = channel_picks.moved(value, given)
        return None if found is None else self.follow(value, found)

    def follow(self, value: relax.Expr, picks: Picks) -> _Value:
        return _Value(None, None, len(picks.at), picks=picks, moved=value, name=self.name)

    def picks(self, value: relax.Expr) -> Picks | None:
        """Where the channels of a value lie, if they are in blocks."""
        found = self.values.get(value)
        if found is None:
            return None
        if found.picks is not None and found.blocked is None:
            return found.picks
        if not self.is_blocked(value):
            return None
        return channel_picks.whole(self.in_blocks(value), found.channels)

    def join(self, call: relax.Call) -> _Value | None:
        """Values one after the other, unless all lie in blocks that they fill."""
        fields = flat(call.args)
        if len(_shape(call)) != 4 or int(call.attrs.axis) % 4 != 1:
            return None
        if not _is_static_float(call) or not any(self.is_blocked(f) for f in fields):
            return None
        there = [f for f in fields if not self.is_blocked(f) or self.values[f].blocked is not None]
        if len(there) == len(fields) and all(_shape(f)[1] % CHANNEL_BLOCK == 0 for f in fields):
            return None
        parts = []
        for field in fields:
            part = self.picks(field)
            if part is None and (form := self.blocked(field)) is not None:
                part = channel_picks.whole(form, _shape(field)[1])
            if part is None:
                return None
            parts.append(part)
        return self.follow(call, channel_picks.joined(parts))

    # ---- operators --------------------------------------------------------------------------

    def rewrite(self, call: relax.Call) -> _Value | None:
        """Return the blocked value of a call; None if the plain form is right."""
        name = operator_name(call)
        if not _is_static_float(call):
            return None
        if name == "relax.nn.conv2d":
            return self.conv2d(call)
        if not any(self.is_blocked(a) for a in flat(call.args)):
            return None
        handler: Callable[[relax.Call], _Value | None] | None = None
        if name in UNARY:
            handler = self.unary
        elif name in BINARY:
            handler = self.binary
        elif name in POOLS:
            handler = self.pool
        elif name in ("relax.nn.adaptive_avg_pool2d", "relax.mean"):
            handler = self.mean
        elif name == "relax.concat":
            handler = self.concat
        return handler(call) if handler else None

    def conv2d(self, call: relax.Call) -> _Value | None:
        data, asked = call.args[0], read(call)
        if asked is None:
            return None
        source, asked = self.source_of(data, asked)
        in_blocks = source is not None or self.is_blocked(data)
        chosen = choose(asked, self.target, in_blocks, winograd=self.winograd, knobs=self.knobs)
        if source is None:
            source = self.blocked(data) if chosen.takes_blocks else self.plain_expr(data)
        result = self.builder.call_te(
            chosen.compute,
            source,
            relax.const(chosen.weight, str(chosen.weight.dtype)),
            primfunc_name_hint=chosen.name,
            primfunc_attrs=chosen.attrs,
        )
        return _Value(None, self.emit(result), asked.result[1])

    def source_of(
        self, data: relax.Expr, asked: Convolution
    ) -> tuple[relax.Expr | None, Convolution]:
        """What to read instead of moved channels, with the weights moved; None to read them."""
        found = self.values.get(data)
        if found is None or found.picks is None or found.blocked is not None:
            return None, asked
        folded = channel_picks.with_weights_moved(asked, found.picks)
        return (None, asked) if folded is None else (found.picks.sources[0], folded)

    def unary(self, call: relax.Call) -> _Value:
        data = self.values[call.args[0]]
        args = [self.in_blocks(call.args[0]), *call.args[1:]]
        return _Value(None, self.emit(relax.Call(call.op, args, call.attrs)), data.channels)

    def binary(self, call: relax.Call) -> _Value | None:
        channels, shape = int(call.ty.shape[1]), _shape(call)
        args = []
        for a in call.args:
            if is_scalar(a):
                args.append(a)
                continue
            if len(_shape(a)) != 4 or _shape(a)[1] != channels or _shape(a)[0] > shape[0]:
                return None
            form = self.blocked(a)
            if form is None:
                return None
            args.append(form)
        return _Value(None, self.emit(relax.Call(call.op, args, call.attrs)), channels)

    def pool(self, call: relax.Call) -> _Value | None:
        attrs, data = call.attrs, self.values[call.args[0]]
        if attrs.layout != "NCHW":
            return None
        build = relax.op.nn.max_pool2d if "max" in operator_name(call) else relax.op.nn.avg_pool2d
        result = build(
            self.in_blocks(call.args[0]),
            pool_size=attrs.pool_size,
            strides=attrs.strides,
            padding=attrs.padding,
            dilation=attrs.dilation,
            ceil_mode=attrs.ceil_mode,
            count_include_pad=attrs.count_include_pad,
            layout=BLOCKED_LAYOUT,
        )
        return _Value(None, self.emit(result), data.channels)

    def mean(self, call: relax.Call) -> _Value | None:
        """Rewrite a mean over the image: the channel order stays, so unblocking is a reshape."""
        data, shape = self.values[call.args[0]], _shape(call)
        if "pool" in operator_name(call):
            keep = True
            if shape[2:] != (1, 1) or call.attrs.layout != "NCHW":
                return None
        else:
            axes = sorted(int(a) % 4 for a in call.attrs.axis) if call.attrs.axis else []
            keep = bool(call.attrs.keepdims)
            if axes != [2, 3]:
                return None
        result = self.emit(relax.op.mean(self.in_blocks(call.args[0]), [2, 3], keepdims=True))
        if keep:
            return _Value(None, result, data.channels)
        blocks = _shape(result)[1]
        flat = self.emit(relax.op.reshape(result, (shape[0], blocks * CHANNEL_BLOCK)))
        if data.channels != blocks * CHANNEL_BLOCK:
            flat = self.emit(relax.op.strided_slice(flat, axes=[1], begin=[0], end=[data.channels]))
        return _Value(flat)

    def concat(self, call: relax.Call) -> _Value | None:
        fields = flat(call.args)
        if int(call.attrs.axis) % 4 != 1:
            return None
        if any(len(_shape(f)) != 4 or _shape(f)[1] % CHANNEL_BLOCK for f in fields):
            return None
        forms = [form for f in fields if (form := self.blocked(f)) is not None]
        if len(forms) < len(fields):
            return None
        result = self.emit(relax.op.concat(forms, axis=1))
        return _Value(None, result, int(call.ty.shape[1]))


# ---- queries about expressions ------------------------------------------------------------------


def _shape(value: relax.Expr) -> tuple[int, ...]:
    """Return the shape; empty if a part of it is not known."""
    return static_shape(value) or ()


def _is_static_float(call: relax.Call) -> bool:
    kind = call.ty
    return (
        isinstance(kind, relax.TensorType)
        and str(kind.dtype).startswith("float")
        and bool(_shape(call))
    )


def block_layout(
    target: Target, *, winograd: bool = True, moves: bool = True, knobs: Knobs | None = None
) -> tvm.transform.Pass:
    """Return the pass over the main function; it skips one that is not a single dataflow block."""

    @tvm.transform.module_pass(opt_level=0, name="BlockLayout")
    def transform(module: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        blocks = module["main"].body.blocks
        if len(blocks) != 1 or not isinstance(blocks[0], relax.DataflowBlock):
            return module
        if not all(isinstance(b, relax.VarBinding) for b in blocks[0].bindings):
            return module  # a match_cast checks shapes at run time; nothing here keeps that
        rewriter = _Rewriter(module, target, winograd, moves, knobs or Knobs())
        result = rewriter.run()
        return relax.transform.DeadCodeElimination()(result) if rewriter.changed else module

    return transform
