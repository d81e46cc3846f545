"""Words for the parameters that several CPU rules have."""

from __future__ import annotations

from types import MappingProxyType

from tvmscope.messages import marked

COLUMNS = MappingProxyType(
    {"columns": marked("{value} columns of the result are kept in registers at a time")}
)
ROWS = MappingProxyType({"rows": marked("{value} rows of the result are computed together")})
SUMS = MappingProxyType(
    {
        "chunk": marked("{value} inputs are summed before the next results' turn"),
        "unroll": marked("{value} steps of the sums are written out one behind the other"),
        "order": marked("the work is handed out with the {value} outermost"),
        "prefetch=1": marked("the next weights are fetched while the present ones are used"),
        "prefetch=0": marked("weights are not fetched ahead"),
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
"""Which kernel a convolution becomes is decided while the graph is lowered."""
