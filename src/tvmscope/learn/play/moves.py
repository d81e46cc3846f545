"""The primitives that a player may use, as data: a name, a loop by its index, and a number."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvmscope.errors import BuildError
from tvmscope.messages import Message, msg

if TYPE_CHECKING:
    from tvm.s_tir import Schedule
    from tvm.s_tir.schedule import LoopRV

BLOCK, UPDATE = "C", "C_update"


@dataclass(frozen=True)
class Move:
    """One primitive on one loop, counted from the outermost."""

    primitive: str
    loop: int
    value: int = 0

    def __str__(self) -> str:
        number = f", {self.value}" if PRIMITIVES[self.primitive].takes else ""
        return f"{self.primitive}(loop {self.loop}{number})"


@dataclass(frozen=True)
class Primitive:
    """How a move is made, and its purpose."""

    words: Message
    takes: Message | None
    """The meaning of its number; None if it takes none."""
    apply: Callable[[Schedule, list[LoopRV], Move], None]


def play(sch: Schedule, moves: Sequence[Move]) -> None:
    """Make all moves, one after the other."""
    for move in moves:
        loops = sch.get_loops(_main(sch))
        if not 0 <= move.loop < len(loops):
            raise BuildError(
                msg("there is no loop {loop}; there are {count}", loop=move.loop, count=len(loops))
            )
        PRIMITIVES[move.primitive].apply(sch, loops, move)


def loop_names(sch: Schedule) -> tuple[str, ...]:
    """Return the loops around the products with their iterations, the outermost first."""
    loops = (sch.get(loop) for loop in sch.get_loops(_main(sch)))
    return tuple(f"{loop.loop_var.name} x {loop.extent}" for loop in loops)


def _main(sch: Schedule) -> str:
    """Return the block of the products: its name changes when its zeros are moved out."""
    names = [
        str(sch.get(block).name_hint) for block in sch.get_child_blocks(sch.get_sblock("root"))
    ]
    return UPDATE if UPDATE in names else BLOCK


def _split(sch: Schedule, loops: list[LoopRV], move: Move) -> None:
    sch.split(loops[move.loop], factors=[None, move.value])


def _inward(sch: Schedule, loops: list[LoopRV], move: Move) -> None:
    place = move.loop
    if place + 1 >= len(loops):
        raise BuildError(msg("the innermost loop cannot go further in"))
    sch.reorder(loops[place + 1], loops[place])


def _fuse(sch: Schedule, loops: list[LoopRV], move: Move) -> None:
    if move.loop + 1 >= len(loops):
        raise BuildError(msg("the innermost loop has none inside it to be fused with"))
    sch.fuse(loops[move.loop], loops[move.loop + 1])


def _registers(sch: Schedule, loops: list[LoopRV], move: Move) -> None:
    out = sch.cache_write(_main(sch), 0, "local")
    sch.reverse_compute_at(out, loops[move.loop])


def _zeros(sch: Schedule, loops: list[LoopRV], move: Move) -> None:
    sch.decompose_reduction(_main(sch), loops[move.loop])


PRIMITIVES: dict[str, Primitive] = {
    "split": Primitive(msg("cut a loop in two"), msg("turns of the inner part"), _split),
    "inward": Primitive(msg("change places with the loop inside"), None, _inward),
    "fuse": Primitive(msg("join with the loop inside"), None, _fuse),
    "vectorize": Primitive(
        msg("make it vector instructions"), None, lambda s, loops, m: s.vectorize(loops[m.loop])
    ),
    "parallel": Primitive(
        msg("hand its turns to the cores"), None, lambda s, loops, m: s.parallel(loops[m.loop])
    ),
    "unroll": Primitive(
        msg("write its turns out"), None, lambda s, loops, m: s.unroll(loops[m.loop])
    ),
    "registers": Primitive(msg("keep the sums inside this loop in a buffer"), None, _registers),
    "zeros": Primitive(
        msg("set the sums to zero before this loop"),
        None,
        _zeros,
    ),
}
