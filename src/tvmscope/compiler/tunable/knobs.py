"""Parameters of kernels: looked up by workload, and stored on the block that they belong to.

A pass that makes a kernel knows the workload (operator, shapes, dtype) and asks `Knobs` for its
parameters. It uses those that change the computation itself; all are passed on as an annotation of
the main block, through fusion, to the schedule rule.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tvmscope.core.tuning import Choice, Params

if TYPE_CHECKING:
    from tvm import s_tir, tirx
    from tvm.s_tir.schedule import SBlockRV

WORKLOAD = "tvmscope.workload"
PARAMS = "tvmscope.params"


@dataclass(frozen=True)
class Knobs:
    """The parameters of each workload; an unknown workload has none."""

    choices: Mapping[str, Choice] = field(default_factory=dict)
    forced: Params = field(default_factory=dict)
    """Parameters for every workload, to lower a model in another way."""

    def of(self, workload: str) -> Params:
        """Return the parameters of a workload."""
        chosen = self.choices.get(workload)
        return {**self.forced, **(chosen.candidate.params if chosen else {})}


def int_of(params: Params, name: str) -> int | None:
    """Return a parameter that is a number; None if it is not given."""
    value = params.get(name)
    return None if value is None else int(value)


def without(params: Params, *names: str) -> Params:
    """Return the parameters except the named ones."""
    return {name: value for name, value in params.items() if name not in names}


def ranked(params: Params, name: str, ranking: Sequence[int | str]) -> Params:
    """Replace `rank` by the parameter that it means: the nth value of a ranking.

    A model is lowered with a rank to see all its workloads at their second-best value, whatever
    that is for each. The best value needs no parameter.
    """
    rank = min(int_of(params, "rank") or 0, len(ranking) - 1)
    left = without(params, "rank")
    return left if rank == 0 or name in left else {**left, name: ranking[rank]}


def by(sizes: Sequence[int]) -> str:
    """Format sizes as in a workload: `1x64x56x56`."""
    return "x".join(map(str, sizes))


def notes(workload: str, params: Params) -> dict[str, str]:
    """Return the annotations of a kernel's main block."""
    return {WORKLOAD: workload, PARAMS: json.dumps(params, sort_keys=True)}


def params_of(sch: s_tir.Schedule, block: SBlockRV) -> Params:
    """Return the parameters that a block has."""
    text = sch.get(block).annotations.get(PARAMS)
    params: Params = json.loads(str(text)) if text is not None else {}
    return params


def with_params(func: tirx.PrimFunc, params: Params) -> tirx.PrimFunc:
    """Return the function with its main block's parameters replaced."""
    from tvm.s_tir import Schedule

    sch = Schedule(func)
    for block in sch.get_child_blocks(sch.get_sblock("root")):
        if PARAMS in sch.get(block).annotations:
            sch.unannotate(block, PARAMS)
            sch.annotate(block, PARAMS, json.dumps(params, sort_keys=True))
    changed: tirx.PrimFunc = sch.mod["main"]
    return changed


def workload_of(func: tirx.PrimFunc) -> str:
    """Return a function's key in a database: its block's note, else a digest of its code."""
    from tvm_ffi import structural_hash

    noted = (b.annotations[WORKLOAD] for b in _blocks(func.body) if WORKLOAD in b.annotations)
    found = next(noted, None)
    if found is not None:
        return str(found)
    return f"tir {structural_hash(func.without_attr('global_symbol')) % 2**64:016x}"


def _blocks(s: tirx.Stmt) -> Iterator[s_tir.SBlock]:
    from tvm.s_tir import SBlockRealize
    from tvm.tirx import SeqStmt

    if isinstance(s, SBlockRealize):
        yield s.block
        yield from _blocks(s.block.body)
    elif isinstance(s, SeqStmt):
        for part in s.seq:
            yield from _blocks(part)
    elif hasattr(s, "body"):
        yield from _blocks(s.body)
