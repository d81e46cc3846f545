"""Channels picked out of blocked tensors, in any order: one copy, a vector at a time.

A block of the result takes its 16 channels from some blocks of the sources. Each of these is loaded
as a vector, and shuffles with constant indices put the lanes into their places.
"""

from __future__ import annotations

from collections.abc import Sequence

from tvm import te, tirx
from tvm.script.ir_builder import tirx as T

from tvmscope.compiler.cost.tiles import CHANNEL_BLOCK
from tvmscope.compiler.kernels.loops import Expr, extern, phases
from tvmscope.compiler.kernels.marks import OP, PICK

Lanes = dict[int, dict[int, int]]
"""For a block of the result, by block of the sources: which lane goes to which."""


def pick_channels(*sources: te.Tensor, picks: Sequence[int]) -> te.Tensor:
    """Blocks of the channels `picks`, counted through the blocks of all sources, fillings too.

    What fills the last block up is one of its channels.
    """
    batch, _, height, width, _ = (int(d) for d in sources[0].shape)
    blocks = [lanes_of(picks[i : i + CHANNEL_BLOCK]) for i in range(0, len(picks), CHANNEL_BLOCK)]
    places = [(n, b) for n, source in enumerate(sources) for b in range(int(source.shape[1]))]

    def build(ins: Sequence[tirx.Buffer], outs: Sequence[tirx.Buffer]) -> tirx.Stmt:
        out = T.buffer_proxy(outs[0])
        whole = T.ramp(0, 1, CHANNEL_BLOCK)

        def row(task: Expr) -> None:
            n, h = task // height, task % height
            for index, lanes in enumerate(blocks):
                with T.serial(0, width) as w:
                    vectors = []
                    for block in lanes:
                        source, at = places[block]
                        vectors.append(T.buffer_proxy(ins[source])[n, at, h, w, whole])
                    out[n, index, h, w, whole] = _shuffled(vectors, list(lanes.values()))

        return phases([(batch * height, row, False)], gpu=False)

    shape = (batch, len(blocks), height, width, CHANNEL_BLOCK)
    kinds, marks = [sources[0].dtype], {OP: PICK}
    return extern([shape], list(sources), build, kinds, "pick_channels", marks)[0]


def lanes_of(picks: Sequence[int]) -> Lanes:
    """What each lane of a block is taken from; those behind the last pick stay as they come."""
    found: Lanes = {}
    for lane, pick in enumerate(picks):
        found.setdefault(pick // CHANNEL_BLOCK, {})[lane] = pick % CHANNEL_BLOCK
    return found


def _shuffled(vectors: Sequence[Expr], lanes: Sequence[dict[int, int]]) -> Expr:
    """One vector after the other is put over the lanes that are there."""
    first, *rest = vectors
    value = _chosen([first], [lanes[0].get(lane, lane) for lane in range(CHANNEL_BLOCK)])
    for vector, wanted in zip(rest, lanes[1:], strict=True):
        places = [
            CHANNEL_BLOCK + wanted[lane] if lane in wanted else lane
            for lane in range(CHANNEL_BLOCK)
        ]
        value = _chosen([value, vector], places)
    return value


def _chosen(vectors: list[Expr], places: list[int]) -> Expr:
    if places == list(range(CHANNEL_BLOCK)):
        return vectors[0]
    return tirx.Shuffle(vectors, [tirx.IntImm("int32", place) for place in places])
