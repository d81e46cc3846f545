from collections.abc import Sequence

from tvm.ir.expr import Call, Expr

def resize2d(
    data: Expr,
    size: Expr | int | Sequence[Expr | int],
    roi: float | Sequence[float] | None = None,
    layout: str = "NCHW",
    method: str = "linear",
    coordinate_transformation_mode: str = "half_pixel",
    rounding_method: str = "round",
    cubic_alpha: float = -0.75,
    cubic_exclude: int = 0,
    extrapolation_value: float = 0.0,
    out_dtype: str | None = None,
) -> Call: ...
