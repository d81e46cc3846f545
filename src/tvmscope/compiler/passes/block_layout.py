"""Convolution networks run on channel blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvmscope.compiler.manifest.context import Context
from tvmscope.compiler.manifest.pass_ import Pass, Shows
from tvmscope.compiler.manifest.switch import Switch
from tvmscope.messages import marked

if TYPE_CHECKING:
    import tvm


def make(context: Context) -> tvm.transform.Pass:
    from tvmscope.compiler.rewrites.cpu.block_layout import block_layout

    asked = context.options.overrides
    return block_layout(
        context.target,
        winograd=bool(asked.get("winograd", True)),
        moves=bool(asked.get("channel_moves", True)),
        knobs=context.knobs,
    )


PASS = Pass(
    name="block-layout",
    phase="layout",
    words=marked("Runs convolution networks on blocks of 16 channels from end to end."),
    make=make,
    ours=("cpu",),
    switches=(
        Switch(name="layout"),
        Switch(
            name="winograd", overrides={"winograd": False}, needs=("layout", "winograd-schedule")
        ),
        Switch(name="channel-moves", overrides={"channel_moves": False}, needs=("layout",)),
    ),
    shows=Shows(kernels="conv|pool", only_unscheduled=True),
)
