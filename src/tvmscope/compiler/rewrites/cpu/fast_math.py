"""Replaces transcendental functions by polynomials that vectorise.

LLVM has no vector `exp` or `erf`: each element becomes a call into the C library. TVM's own
approximations (`topi.fast_*`) stay within about 1e-6 of them, far inside the tolerance that every
model is verified with.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import inf, nan, pi

import tvm
from tvm import relax, te, tirx, topi
from tvm.relax.expr_functor import PyExprMutator, mutator

from tvmscope.compiler.graph.rewrite import Handler, Rewriter, replace_binding, rewrite_calls
from tvmscope.compiler.units.functions import activation_after
from tvmscope.compiler.units.graph import Graph


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


def gelu_tanh(x: te.Tensor) -> te.Tensor:
    """Compute x * (1 + tanh(u)) / 2, which is x * sigmoid(2 u), with GELU's cubic u."""
    cube = topi.multiply(x, topi.multiply(x, x))
    inner = topi.add(x, topi.multiply(cube, tirx.const(0.044715, x.dtype)))
    return topi.multiply(x, sigmoid(topi.multiply(inner, tirx.const(2 * _GELU, x.dtype))))


_GELU = (2 / pi) ** 0.5
_LOG = (
    7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1,
    -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1,
)  # fmt: skip
"""Cephes' polynomial for log(1 + f) from sqrt(1/2) to sqrt(2), beyond f - f * f / 2."""
_LN_2 = 0.693359375, -2.12194440e-4
"""The logarithm of 2 in two parts, of which multiples of the first are exact."""
_SMALLEST_NORMAL = 2.0**-126


def log(x: te.Tensor) -> te.Tensor:
    """Compute the natural logarithm by the exponent's bits and a polynomial of the fraction.

    What is used several times has a name: as an expression it would be computed as often, with all
    that was inlined into it.
    """
    number = partial(tirx.const, dtype="float32")
    given, power, f = (tirx.Var(name, "float32") for name in ("given", "power", "f"))
    bits = tirx.Var("bits", "int32")
    small = given < number(_SMALLEST_NORMAL)
    scaled = tirx.Select(small, given * number(2.0**23), given)
    fraction = tirx.reinterpret("float32", (bits & 0x7FFFFF) | 0x3F800000)
    large = fraction > number(2**0.5)
    exponent = (bits >> 23) - 127 - tirx.Select(small, 23, 0) + tirx.Select(large, 1, 0)
    series: tirx.Expr = number(_LOG[0])
    for coefficient in _LOG[1:]:
        series = series * f + number(coefficient)
    rest = series * f * f * f + power * number(_LN_2[1]) - f * f * number(0.5)
    usual: tirx.Expr = f + rest + power * number(_LN_2[0])
    usual = tirx.Let(f, tirx.Select(large, fraction * number(0.5), fraction) - number(1.0), usual)
    usual = tirx.Let(power, tirx.Cast("float32", exponent), usual)
    usual = tirx.Let(bits, tirx.reinterpret("int32", scaled), usual)
    finite = tirx.Select(given < number(inf), usual, given)
    others = tirx.Select(given == number(0.0), number(-inf), number(nan))
    value = tirx.Select(given > number(0.0), finite, others)
    return te.compute(x.shape, lambda *i: tirx.Let(given, x(*i), value), name="log")


def mish(x: te.Tensor) -> te.Tensor:
    """Compute x * tanh(softplus(x)), which needs one exponential: of n = e^x (e^x + 2), n / (n + 2)
    is the hyperbolic tangent."""
    two = tirx.const(2.0, x.dtype)
    power = topi.fast_exp(topi.minimum(x, tirx.const(20.0, x.dtype)))  # above, the quotient is 1
    n = tirx.Var("n", x.dtype)
    return te.compute(
        x.shape,
        lambda *i: tirx.Let(n, power(*i) * (power(*i) + two), x(*i) * (n / (n + two))),
        name="mish",
    )


def softplus(x: te.Tensor) -> te.Tensor:
    """Compute log(1 + e^x) as max(x, 0) + log(1 + t) with t = e^-|x|: twice the inverse hyperbolic
    tangent of t / (2 + t), whose series is exact for small t too."""
    power = topi.fast_exp(topi.negative(topi.abs(x)))
    zero, two = (tirx.const(value, x.dtype) for value in (0.0, 2.0))
    s = tirx.Var("s", x.dtype)
    series: tirx.Expr = zero
    for n in range(15, 0, -2):
        series = series * (s * s) + tirx.const(2 / n, x.dtype)

    def value(*i: tirx.Var) -> tirx.Expr:
        most = tirx.Select(x(*i) < zero, zero, x(*i))  # NaN stays NaN
        return tirx.Let(s, power(*i) / (two + power(*i)), most + series * s)

    return te.compute(x.shape, value, name="softplus")


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
    "relax.nn.gelu_tanh": _elementwise(gelu_tanh),
    "relax.nn.silu": _elementwise(silu),
    "relax.sigmoid": _elementwise(sigmoid),
    "relax.exp": _elementwise(topi.fast_exp),
    "relax.log": _elementwise(log),
    "relax.erf": _elementwise(erf),
    "relax.tanh": _elementwise(topi.fast_tanh),
    "relax.nn.softmax": _softmax,
}


ACTIVATIONS = {"mish": mish, "softplus": softplus}
"""Activations that are several operators, by the name of their values."""


@mutator
class _Activations(PyExprMutator):
    """Computes activations that are written with several operators by one formula."""

    def __init__(self, module: tvm.IRModule, function: relax.Function) -> None:
        super().__init__(module)
        graph = Graph(function)
        self.found: dict[relax.Var, tuple[str, relax.Var]] = {}
        for var in [*function.params, *(b.var for b in graph.bindings)]:
            if getattr(var.ty, "dtype", None) == "float32" and (
                found := activation_after(graph, var, frozenset())
            ):
                self.found[found[1][-1]] = found[0], var

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        kind, source = self.found.get(binding.var, ("", binding.var))
        if kind not in ACTIVATIONS:
            super().visit_var_binding_(binding)
            return
        given = self.visit_expr(source)
        call = self.builder_.call_te(ACTIVATIONS[kind], given, primfunc_name_hint=kind)
        replace_binding(self, binding.var, call)


def _activations() -> tvm.transform.Pass:
    @tvm.transform.module_pass(opt_level=0, name="Activations")
    def transform(module: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        for var, function in module.functions_items():
            if isinstance(function, relax.Function):
                made = _Activations(module, function)
                whole = made.visit_expr(function)
                made.builder_.update_func(var, whole)
                module = made.builder_.get()
        return relax.transform.DeadCodeElimination()(module)

    return transform


def fast_math() -> tvm.transform.Pass:
    """Return the pass; activations go first, while their parts are still Relax operators."""
    return tvm.transform.Sequential([_activations(), rewrite_calls("FastMath", HANDLERS)])
