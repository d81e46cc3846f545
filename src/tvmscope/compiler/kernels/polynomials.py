"""Transcendental functions of single numbers as polynomials, which vectorise in any loop."""

from __future__ import annotations

from tvm import ir, tirx

Expr = tirx.Expr
_LOWEST, _HIGHEST = -87.3, 88.7
"""Powers of e beyond are no normal numbers."""
_LOG2_E = 1.4426950408889634
_LN_2 = 0.693359375, -2.12194440e-4
"""The logarithm of 2 in two parts, of which multiples of the first are exact."""
_EXP = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 0.5)
"""Cephes' polynomial for e^f - 1 - f, over f * f, from -ln(2) / 2 to ln(2) / 2."""


def exp(x: Expr) -> Expr:
    """Return e^x; NaN stays NaN."""
    given, power, f = (tirx.Var(name, "float32") for name in ("given", "power", "f"))
    series: Expr = _number(_EXP[0])
    for coefficient in _EXP[1:]:
        series = series * f + _number(coefficient)
    whole = tirx.Cast("int32", power) + 127
    value: Expr = (series * f * f + f + _number(1)) * tirx.reinterpret("float32", whole << 23)
    value = tirx.Let(f, given - power * _number(_LN_2[0]) - power * _number(_LN_2[1]), value)
    value = tirx.Let(power, tirx.floor(given * _number(_LOG2_E) + _number(0.5)), value)
    value = tirx.Let(given, tirx.max(tirx.min(x, _number(_HIGHEST)), _number(_LOWEST)), value)
    return tirx.Select(tirx.isnan(x), x, value)


def tanh(x: Expr) -> Expr:
    """Return 1 - 2 / (e^2x + 1), to 1e-7."""
    return _number(1) - _number(2) / (exp(x * _number(2)) + _number(1))


def _number(value: float) -> Expr:
    return tirx.const(value, "float32")


_FUNCTIONS = {"tirx.exp": exp, "tirx.tanh": tanh}


def vectorising(loops: tirx.Stmt) -> tirx.Stmt:
    """Return loops with these functions in place of calls, which LLVM cannot vectorise."""
    import tvm_ffi

    def replaced(call: ir.Call) -> Expr:
        function = _FUNCTIONS.get(getattr(call.op, "name", ""))
        single = function is not None and str(call.ty.dtype) == "float32"
        return function(call.args[0]) if function is not None and single else call

    changed: tirx.Stmt = tvm_ffi.structural_map(loops, (ir.Call, replaced))
    return changed
