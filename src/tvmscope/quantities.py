"""Formats quantities: seconds, bytes, rates, shapes."""

from __future__ import annotations


def format_s(seconds: float | None) -> str:
    """Format a time with three significant digits and a suitable unit."""
    if seconds is None:
        return "-"
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns")):
        if abs(seconds) >= scale * 0.9995 or unit == "ns":
            value = seconds / scale
            digits = 0 if value >= 99.95 else 1 if value >= 9.995 else 2
            return f"{value:.{digits}f} {unit}"
    raise AssertionError("unreachable")


def format_rate(per_s: float) -> str:
    """Format items per second with three significant digits, whole ones from a hundred on."""
    digits = 0 if per_s >= 99.95 else 1 if per_s >= 9.995 else 2
    return f"{per_s:,.{digits}f}"


def format_bytes(count: float | None) -> str:
    """Format a size in binary units."""
    if count is None:
        return "-"
    value = float(count)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}"
        value /= 1024
    return f"{value:.2f} GiB"


def format_shape(shape: tuple[int, ...]) -> str:
    """Format `1x3x224x224`, or `scalar`."""
    return "x".join(str(d) for d in shape) or "scalar"
