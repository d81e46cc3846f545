"""The largest and the smallest element along axes, of infinities alone the infinity.

TVM's reductions begin at the lowest (largest) finite number, so that the maximum of a row of -inf
would be -3.4e38: masks that ask whether a row has any open place would be told that it has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tvm import relax, te, tirx, topi

_Legalize = Callable[[relax.BlockBuilder, relax.Call], relax.Expr]
_LARGEST = te.comm_reducer(
    lambda a, b: tirx.max(a, b), lambda dtype: -tirx.infinity(dtype), name="largest"
)
_SMALLEST = te.comm_reducer(
    lambda a, b: tirx.min(a, b), lambda dtype: tirx.infinity(dtype), name="smallest"
)


def _extreme(name: str, reducer: Callable[..., tirx.Expr]) -> _Legalize:
    usual = getattr(topi, name)

    def legalize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        data = call.args[0]
        if "float" not in str(data.ty.dtype):
            return builder.call_te(usual, data, call.attrs.axis, call.attrs.keepdims)
        return builder.call_te(
            reduced, data, call.attrs.axis, call.attrs.keepdims, primfunc_name_hint=name
        )

    def reduced(x: te.Tensor, axis: list[int] | None, keepdims: bool) -> te.Tensor:
        rank = len(x.shape)
        axes = list(range(rank)) if axis is None else sorted(int(a) % rank for a in axis)
        ranges = {a: te.reduce_axis((0, x.shape[a]), name=f"k{a}") for a in axes}
        sizes = [1 if a in ranges else x.shape[a] for a in range(rank)]
        shape = sizes if keepdims else [size for a, size in enumerate(sizes) if a not in ranges]

        def element(*places: tirx.Var) -> tirx.Expr:
            kept = iter(p for n, p in enumerate(places) if not (keepdims and n in ranges))
            index = [ranges[a] if a in ranges else next(kept) for a in range(rank)]
            return reducer(x(*index), axis=list(ranges.values()))

        return te.compute(shape, element, name=f"{name}_red")

    return legalize


LEGALIZED: Mapping[str, _Legalize] = {
    "relax.max": _extreme("max", _LARGEST),
    "relax.min": _extreme("min", _SMALLEST),
}
"""How our pipeline makes kernels of these operators."""
