"""Replaces transcendental functions by polynomials that vectorise.

LLVM has no vector `exp` or `erf`: each element becomes a call into the C library. TVM's own
approximations (`topi.fast_*`) stay within about 1e-6 of them, far inside the tolerance that every
model is verified with.
"""

from __future__ import annotations

from collections.abc import Callable

import tvm
from tvm import relax, te, tirx, topi

from tvmscope.compiler.graph.rewrite import Handler, Rewriter, rewrite_calls


def erf(x: te.Tensor) -> te.Tensor:
    """Use TVM's polynomial, which clamps and so loses NaN; here NaN stays NaN."""
    fast = topi.fast_erf(x)
    return te.compute(
        x.shape, lambda *i: tirx.Select(tirx.isnan(x(*i)), x(*i), fast(*i)), name="erf"
    )


def gelu(x: te.Tensor) -> te.Tensor:
    """Compute x * (1 + erf(x / sqrt 2)) / 2; the factor x propagates NaN."""
    fast = topi.fast_erf(topi.multiply(x, tirx.const(0.5**0.5, x.dtype)))
    half = topi.multiply(x, tirx.const(0.5, x.dtype))
    return topi.multiply(half, topi.add(fast, tirx.const(1.0, x.dtype)))


def sigmoid(x: te.Tensor) -> te.Tensor:
    """Compute 1 / (1 + exp(-x))."""
    one = tirx.const(1.0, x.dtype)
    return topi.divide(one, topi.add(topi.fast_exp(topi.negative(x)), one))


def silu(x: te.Tensor) -> te.Tensor:
    """Compute x * sigmoid(x)."""
    return topi.multiply(x, sigmoid(x))


def _elementwise(compute: Callable[[te.Tensor], te.Tensor]) -> Handler:
    def handler(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
        if str(getattr(call.ty, "dtype", "")) != "float32":
            return None
        name = compute.__name__.removeprefix("fast_")
        return rewriter.builder_.call_te(compute, call.args[0], primfunc_name_hint=name)

    return handler


def _softmax(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    if str(call.ty.dtype) != "float32":
        return None
    return rewriter.builder_.call_te(
        topi.nn.fast_softmax, call.args[0], call.attrs.axis, primfunc_name_hint="softmax"
    )


HANDLERS = {
    "relax.nn.gelu": _elementwise(gelu),
    "relax.nn.silu": _elementwise(silu),
    "relax.sigmoid": _elementwise(sigmoid),
    "relax.exp": _elementwise(topi.fast_exp),
    "relax.erf": _elementwise(erf),
    "relax.tanh": _elementwise(topi.fast_tanh),
    "relax.nn.softmax": _softmax,
}


def fast_math() -> tvm.transform.Pass:
    """Return the pass."""
    return rewrite_calls("FastMath", HANDLERS)
