"""Converters of our own for ONNX operators that TVM's importer translates wrongly or refuses.

One file per family of operators; each has a `CONVERTERS` table by operator name (`node` and
`resize` serve them). A converter returns the result, returns None to leave the node to TVM's
converter, or raises `Unsupported`.
"""

from __future__ import annotations

from tvmscope.compiler.frontends.onnx.converters import (
    arithmetic,
    attention,
    norms,
    quantised,
    recurrent,
    shapes,
    vision,
    windows,
)
from tvmscope.compiler.frontends.onnx.converters.node import Converter

_FAMILIES = (arithmetic, attention, norms, quantised, recurrent, shapes, vision, windows)

CONVERTERS: dict[str, Converter] = {
    name: convert for family in _FAMILIES for name, convert in family.CONVERTERS.items()
}
