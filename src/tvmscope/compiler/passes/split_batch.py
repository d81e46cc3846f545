"""A batch is computed in parts that stay in the caches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvmscope.compiler.manifest.context import Context
from tvmscope.compiler.manifest.pass_ import Pass
from tvmscope.compiler.manifest.switch import Switch
from tvmscope.core.options import CompileOptions
from tvmscope.messages import marked

if TYPE_CHECKING:
    import tvm


def make(context: Context) -> tvm.transform.Pass:
    from tvmscope.compiler.rewrites.cpu.split_batch import split_batch

    return split_batch(context.target)


def _can_be_joined(options: CompileOptions) -> bool:
    return "join-batch" not in options.disabled_passes


PASS = Pass(
    name="split-batch",
    phase="tidy",
    words=marked("Computes a batch in parts whose activations stay in the caches."),
    make=make,
    ours=("cpu",),
    when=_can_be_joined,
    switches=(Switch(name="batch-in-parts", alone=False),),
)
