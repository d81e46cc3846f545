"""Turns a model that TVM's mixed precision made float16 into the same one in bfloat16.

    astype(x, float16)                    ->  astype(x, bfloat16)
    conv2d(x16, w16, out_dtype=float16)   ->  conv2d(xb16, wb16, out_dtype=bfloat16)

`ToMixedPrecision` decides well which operators compute in half precision, but knows float16 alone.
What it writes are casts and output types; weights are still float32 behind casts, so that no value
passes through float16, whose range is smaller.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

OLD, NEW = "float16", "bfloat16"
WIDE = (
    "power", "square", "exp", "log",
    "nn.group_norm", "nn.layer_norm", "isnan", "isinf", "isfinite",
)  # fmt: skip
"""Operators that compute in float32: the square of 257 is infinite in float16, as is exp(12), so
that PyTorch's autocast does the same; and TVM has no bfloat16 kernels of the others."""
FOLLOWING = ("slice_scatter",)
"""Operators that move values of any type, which TVM's pass takes for tensors alone."""
_POLICY, _FOLLOW, _NEVER = "TMixedPrecisionPolicy", 1, 2
_POLICIES = {**dict.fromkeys(WIDE, _NEVER), **dict.fromkeys(FOLLOWING, _FOLLOW)}
_own: dict[str, int | None] = {}
"""TVM's own policies, which its own pipelines keep."""


def set_policies(*, ours: bool) -> None:
    """Have `ToMixedPrecision` treat these operators as said here, or as TVM does."""
    for name, policy in _POLICIES.items():
        operator = tvm.ir.Op.get(f"relax.{name}")
        own = _own.setdefault(name, operator.get_attr(_POLICY))
        operator.reset_attr(_POLICY)
        if ours or own is not None:
            operator.set_attr(_POLICY, policy if ours else own)


def to_bfloat16(step: tvm.transform.Pass) -> tvm.transform.Pass:
    """Return the pass `step`, which makes a model float16, followed by the change to bfloat16.

    A float16 constant of the model itself stays; TVM then refuses the types as different.
    """

    @tvm.transform.module_pass(opt_level=0, name="ToBfloat16")
    def transform(module: tvm.IRModule, _: Any) -> tvm.IRModule:
        done = step(module)
        retyper = _Retyper(done)
        for var, function in done.functions_items():
            if isinstance(function, relax.Function):
                retyper.builder_.update_func(var, retyper.visit_expr(function))
        return retyper.builder_.get()

    return transform


@mutator
class _Retyper(PyExprMutator):
    def visit_call_(self, call: relax.Call) -> relax.Expr:
        called = super().visit_call_(call)
        if not isinstance(called, relax.Call) or called.attrs is None:
            return called
        written = tvm.ir.save_json(called.attrs)
        if f'"{OLD}"' not in written:
            return called
        attrs = tvm.ir.load_json(written.replace(f'"{OLD}"', f'"{NEW}"'))
        return relax.Call(called.op, called.args, attrs, called.ty_args)
