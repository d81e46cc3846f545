"""Descriptions of the parameters that several CPU rules share."""

from __future__ import annotations

from types import MappingProxyType

from tvmscope.messages import marked

COLUMNS = MappingProxyType(
    {"columns": marked("{value} columns of the result are kept in registers at a time")}
)
ROWS = MappingProxyType({"rows": marked("{value} rows of the result are computed together")})
SUMS = MappingProxyType(
    {
        "chunk": marked("{value} inputs are summed before the next results are computed"),
        "unroll": marked("the sums are unrolled by {value} steps"),
        "order": marked("the work is distributed with the {value} outermost"),
        "prefetch=1": marked("the next weights are prefetched while the current ones are used"),
        "prefetch=0": marked("weights are not prefetched"),
    }
)
KERNEL = MappingProxyType(
    {
        "kernel=direct": marked(
            "the convolution is computed directly, without Winograd's transform"
        ),
        "kernel=winograd4": marked("Winograd's transform on tiles of 4x4 saves multiplications"),
        "kernel=winograd2": marked("Winograd's transform on tiles of 2x2 saves multiplications"),
    }
)
"""The kernel of a convolution is chosen while the graph is lowered."""
