"""Generated CUDA kernels are compiled."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvmscope.compiler.manifest.context import Context
from tvmscope.compiler.manifest.pass_ import Pass
from tvmscope.messages import marked

if TYPE_CHECKING:
    import tvm


def make(context: Context) -> tvm.transform.Pass:
    from tvmscope.compiler.rewrites.cuda.compile_units import compile_units

    portable = context.options.overrides.get("portable")
    return compile_units(context.target.arch, context.kernels, context.library_calls, portable)


PASS = Pass(
    name="compile-units",
    phase="schedule",
    words=marked("Compiles the generated kernels to machine code, several at once."),
    make=make,
    ours=("cuda",),
    required=True,
)
