"""The annotations by which a schedule rule recognises the blocks of a kernel of ours."""

from __future__ import annotations

OP = "tvmscope.op"
"""Which operator a block computes."""
PICK = "pick-channels"
"""The operator of a block whose loops are vectors already."""
TILE = "tvmscope.tile"
"""The register tile that a block's computation is padded for."""
LANES = 16
"""Partial results of a row's reduction: the lanes of a vector."""
STAGE = "tvmscope.stage"
"""Marks a stage whose result is worth storing; says how it is computed: `lanes` (a reduction in the
lanes of a vector), `across` (one over the lanes), `scalar` (one value per row), `elements`."""
RECURRENCE = "recurrence"
"""The name of the block with the steps of a recurrent layer, whose loops have known forms."""
