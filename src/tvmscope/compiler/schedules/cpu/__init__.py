"""CPU schedule rules, in the order in which they are offered a function."""

from __future__ import annotations

from tvmscope.compiler.schedules.cpu import conv2d, depthwise, matmul, winograd
from tvmscope.compiler.schedules.cpu.attention import schedule_attention
from tvmscope.compiler.schedules.cpu.conv2d import schedule_conv2d
from tvmscope.compiler.schedules.cpu.depthwise import schedule_depthwise
from tvmscope.compiler.schedules.cpu.fallback import schedule_fallback
from tvmscope.compiler.schedules.cpu.matmul import schedule_matmul
from tvmscope.compiler.schedules.cpu.movement import schedule_movement
from tvmscope.compiler.schedules.cpu.pooling import schedule_pooling
from tvmscope.compiler.schedules.cpu.reduction import schedule_reduction
from tvmscope.compiler.schedules.cpu.rows import schedule_rows
from tvmscope.compiler.schedules.cpu.winograd import schedule_winograd

RULES = (
    ("conv2d", schedule_conv2d),
    ("depthwise", schedule_depthwise),
    ("matmul", schedule_matmul),
    ("winograd", schedule_winograd),
    ("attention", schedule_attention),
    ("rows", schedule_rows),
    ("pooling", schedule_pooling),
    ("reduction", schedule_reduction),
    ("movement", schedule_movement),
    ("fallback", schedule_fallback),
)
SPACES = {
    "conv2d": conv2d.space,
    "depthwise": depthwise.space,
    "matmul": matmul.space,
    "winograd": winograd.space,
}
"""What tuning may choose for a rule's kernels."""
