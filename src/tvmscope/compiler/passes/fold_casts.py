"""Constants are cast once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvmscope.compiler.manifest.context import Context, in_reduced_precision
from tvmscope.compiler.manifest.pass_ import Pass
from tvmscope.compiler.manifest.switch import Switch
from tvmscope.messages import marked

if TYPE_CHECKING:
    import tvm


def make(_: Context) -> tvm.transform.Pass:
    from tvmscope.compiler.rewrites.fold_numpy import fold_numpy

    return fold_numpy()


PASS = Pass(
    name="fold-casts",
    phase="precision",
    words=marked("Casts constants once, with numpy."),
    make=make,
    when=in_reduced_precision,
    switches=(Switch(name="fold-constants"),),
)
