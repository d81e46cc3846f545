"""Words for the parameters that several CPU rules have."""

from __future__ import annotations

from types import MappingProxyType

COLUMNS = MappingProxyType(
    {"columns": "{value} columns of the result are kept in registers at a time"}
)
ROWS = MappingProxyType({"rows": "{value} rows of the result are computed together"})
SUMS = MappingProxyType(
    {
        "chunk": "{value} inputs are summed before the next results' turn",
        "unroll": "{value} steps of the sums are written out one behind the other",
        "order": "the work is handed out with the {value} outermost",
        "prefetch=1": "the next weights are fetched while the present ones are used",
        "prefetch=0": "weights are not fetched ahead",
    }
)
KERNEL = MappingProxyType(
    {
        "kernel=direct": "the convolution is computed directly, without Winograd's transform",
        "kernel=winograd4": "Winograd's transform on tiles of 4x4 saves multiplications",
        "kernel=winograd2": "Winograd's transform on tiles of 2x2 saves multiplications",
    }
)
"""Which kernel a convolution becomes is decided while the graph is lowered."""
