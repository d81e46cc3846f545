"""Sorting, TopK and non-maximum suppression become parallel kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvmscope.compiler.manifest.context import Context
from tvmscope.compiler.manifest.pass_ import Pass
from tvmscope.compiler.manifest.switch import Switch
from tvmscope.messages import marked

if TYPE_CHECKING:
    import tvm


def make(context: Context) -> tvm.transform.Pass:
    from tvmscope.compiler.rewrites.fast_select import fast_select

    return fast_select(context.target)


PASS = Pass(
    name="fast-select",
    phase="layout",
    words=marked("Computes sorting, TopK and non-maximum suppression with parallel kernels."),
    make=make,
    switches=(Switch(name="fast-select"),),
)
