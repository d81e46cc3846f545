"""Numbers behind an activation become parts of a bias or of weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvmscope.compiler.manifest.context import Context
from tvmscope.compiler.manifest.pass_ import Pass
from tvmscope.compiler.manifest.switch import Switch
from tvmscope.messages import marked

if TYPE_CHECKING:
    import tvm


def make(context: Context) -> tvm.transform.Pass:
    from tvmscope.compiler.rewrites.push_numbers import push_numbers

    return push_numbers(half=context.options.precision.is_half)


PASS = Pass(
    name="push-numbers",
    phase="graph",
    words=marked("Moves numbers behind activations into biases and weights."),
    make=make,
    switches=(Switch(name="push-numbers"),),
)
