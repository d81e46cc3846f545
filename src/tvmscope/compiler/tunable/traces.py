"""Schedule traces as JSON: replayed, and a rule's schedule with its tiles as choices.

A trace is a list of steps [kind, inputs, attributes, results] and a list of decisions [index of the
step, what it drew]. A rule writes the sizes of its tiles as constants, and a search can vary only
what was drawn: `with_choices` writes the same schedule with its tiles drawn.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir

Step = list[Any]

_LONGEST = {True: 16, False: 64}
"""The longest tile that a search may draw where its iterations are written out, and where they are
not; the rule's own may be longer."""
_WHOLE = 1 << 30
"""A size that divides no loop: TVM takes the whole loop for one tile then."""
_REST = "None"
"""How TVM writes the part of a split that is what the others leave."""


def text(trace: s_tir.schedule.Trace) -> str:
    """A trace of TVM's as the JSON that records hold."""
    return _dump(_plain(trace.as_json()))


def _dump(trace: Any) -> str:
    return json.dumps(trace, separators=(",", ":"))


def _plain(value: Any) -> Any:
    """TVM's containers and integers as Python's."""
    if value is None or isinstance(value, str | bool | float | int):
        return value
    if hasattr(value, "value"):
        return value.value
    if hasattr(value, "items"):
        return {str(k): _plain(v) for k, v in value.items()}
    return [_plain(v) for v in value]


def applied(trace: str, module: tvm.IRModule) -> s_tir.Schedule:
    """The schedule that a trace makes of a module."""
    sch = s_tir.Schedule(module)
    s_tir.schedule.Trace.apply_json_to_schedule(json.loads(trace), sch)
    return sch


def with_choices(trace: str, module: tvm.IRModule) -> str:
    """The same schedule with its tiles drawn: those that may have any size.

    A vector's length stays as it is, and so does a tile whose size later steps rely on.
    """
    plain = applied(trace, module).mod
    count = len(_tiles(json.loads(trace)[0]))
    return _drawn(trace, [n for n in range(count) if _varies(trace, n, module, plain)])


def _tiles(steps: list[Step]) -> list[int]:
    """The indices of the steps that split a loop into tiles of one constant size."""
    vectors = {step[1][0] for step in steps if step[0] == "Vectorize"}
    return [
        index
        for index, step in enumerate(steps)
        if step[0] == "Split" and len(step[1]) == 3 and step[1][1] == _REST
        if not vectors & set(step[3])
    ]


def _drawn(trace: str, numbers: Collection[int], size: int | None = None) -> str:
    """A trace with some of its tiles drawn, at their own size or at another."""
    steps, decisions = json.loads(trace)
    chosen = [place for n, place in enumerate(_tiles(steps)) if n in numbers]
    unrolled = {step[1][0] for step in steps if step[0] == "Unroll"}
    for before, place in enumerate(chosen):
        kind, (loop, _rest, own), attributes, parts = steps[place + before]
        names = [f"tile{before}_outer", f"tile{before}_inner"]
        longest = max(own, _LONGEST[parts[1] in unrolled])
        drawn = ["SamplePerfectTile", [loop], [2, longest], names]
        split = [kind, [loop, *names], attributes, parts]
        steps[place + before : place + before + 1] = [drawn, split]
        decisions.append([place + before, [1, size or own]])  # TVM works the first one out
    return _dump([steps, decisions])


def _varies(trace: str, number: int, module: tvm.IRModule, plain: tvm.IRModule) -> bool:
    """Whether a tile can be drawn, and the schedule fits it whether it is small or all there is."""
    try:
        same = applied(_drawn(trace, [number]), module).mod
        applied(_drawn(trace, [number], 1), module)
        applied(_drawn(trace, [number], _WHOLE), module)
    except Exception:  # TVM raises many types; any of them means that it does not fit
        return False
    return bool(tvm_ffi.structural_equal(same, plain))
