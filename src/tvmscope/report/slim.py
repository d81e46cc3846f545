"""Makes a session small: numbers keep only the digits that tables need."""

from __future__ import annotations

from typing import Any

from tvmscope.core.session import Session, to_json

_SAMPLES = frozenset({"rounds_s", "device_rounds_s", "values_s", "device_values_s"})
_WARMUPS = frozenset({"warmups_s", "device_warmups_s"})
_SAMPLE_DIGITS, _DIGITS = 5, 6
"""Significant digits; tables show three."""


def slim(session: Session) -> dict[str, Any]:
    """Return the session's documented JSON form with shorter numbers and one warm-up run."""
    data: dict[str, Any] = _shorten(to_json(session))
    return data


def _shorten(value: Any, key: str = "") -> Any:
    if isinstance(value, dict):
        return {k: _shorten(v, k) for k, v in value.items()}
    if isinstance(value, list):
        return [_shorten(v, key) for v in (value[:1] if key in _WARMUPS else value)]
    if isinstance(value, float) and not value.is_integer():  # counts stay exact
        digits = _SAMPLE_DIGITS if key in _SAMPLES else _DIGITS
        return float(f"{value:.{digits}g}")
    return value
