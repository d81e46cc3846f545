"""The rule of kernels generated with Triton: the pass place-units makes them, and tuning chooses
their configuration. They have no loop nest to schedule, so this rule takes no function."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvmscope.compiler.manifest.rule import ScheduleRule
from tvmscope.core.target import Target
from tvmscope.cuda import config as configs
from tvmscope.messages import marked

if TYPE_CHECKING:
    from tvm import s_tir, tirx


def _schedule(func: tirx.PrimFunc, target: Target) -> s_tir.Schedule | None:
    return None


RULE = ScheduleRule(
    name=configs.RULE,
    devices=("cuda",),
    version=1,  # raise it when a template's parameters change their meaning
    words=marked(
        "A kernel generated with Triton: a convolution, product, attention or reduction with all "
        "that follows it, its shapes as constants."
    ),
    schedule=_schedule,
    parameters={
        "template": marked("the template {value}"),
        "m": marked("{value} rows (pixels, matrix rows, queries) a tile"),
        "n": marked("{value} columns (output channels, matrix columns, keys) a tile"),
        "k": marked("{value} terms of the sum in one step of the main loop"),
        "split": marked("{value} blocks share the sum of a tile"),
        "stages": marked("{value} stages of the software pipeline"),
        "warps": marked("{value} warps a block"),
        "group": marked("{value} rows of tiles are walked together, for the L2 cache"),
        "layout": marked("weights packed {value}"),
        "pdl": marked("programmatic dependent launch: {value}"),
        "algorithm": marked("algorithm {value} of those that the library proposes"),
    },
)
