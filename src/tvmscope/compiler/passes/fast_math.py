"""Transcendental functions become polynomials that vectorise."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvmscope.compiler.manifest.context import Context
from tvmscope.compiler.manifest.pass_ import Pass, Shows
from tvmscope.compiler.manifest.switch import Switch
from tvmscope.messages import marked

if TYPE_CHECKING:
    import tvm


def make(_: Context) -> tvm.transform.Pass:
    from tvmscope.compiler.rewrites.cpu.fast_math import fast_math

    return fast_math()


PASS = Pass(
    name="fast-math",
    phase="layout",
    words=marked("Replaces exp, erf, tanh and similar functions by polynomials that vectorise."),
    make=make,
    ours=("cpu",),
    switches=(Switch(name="fast-math"),),
    shows=Shows(kernels="exp|erf|tanh|sigmoid|gelu|silu|softmax"),
)
