"""Steps that the rules of every device share: a schedule, its blocks, the lengths of its loops,
loops with other values of their variables."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, TypeVar

if TYPE_CHECKING:
    from tvm import s_tir, tirx
    from tvm.s_tir.schedule import SBlockRV

Block: TypeAlias = "SBlockRV"
"""A schedule's handle for a block."""
Part = TypeVar("Part", "tirx.Expr", "tirx.Stmt")


def new_schedule(func: tirx.PrimFunc) -> s_tir.Schedule:
    """Return a schedule of a function, without any primitive applied."""
    from tvm.s_tir import Schedule

    return Schedule(func)


def all_blocks(sch: s_tir.Schedule) -> list[Block]:
    """Return the function's blocks, producers first; a scan or a library call has none."""
    from tvm.s_tir import SBlockRealize

    body = sch.mod["main"].body
    if not isinstance(body, SBlockRealize) or body.block.name_hint != "root":
        return []
    return list(sch.get_child_blocks(sch.get_sblock("root")))


def static_extents(sch: s_tir.Schedule, block: Block) -> list[int] | None:
    """Return the lengths of a block's loops, if all are known."""
    from tvm.tirx import IntImm

    found = [sch.get(loop).extent for loop in sch.get_loops(block)]
    return [int(e) for e in found] if all(isinstance(e, IntImm) for e in found) else None


def moved(what: Part, values: dict[tirx.Var, tirx.Expr]) -> Part:
    """Return the same with other values of variables."""
    import tvm_ffi
    from tvm import tirx

    changed: Part = tvm_ffi.structural_map(what, (tirx.Var, lambda v: values.get(v, v)))
    return changed
