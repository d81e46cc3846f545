"""Schedule traces as JSON: replays them, and rewrites a rule's schedule with its tiles as choices.

A trace is a list of steps [kind, inputs, attributes, results] and a list of decisions [index of the
step, drawn value]. A rule writes the sizes of its tiles as constants, but a search can vary only
drawn values: `with_choices` writes the same schedule with its tiles drawn.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir

Step = list[Any]

_LONGEST = {True: 16, False: 64}
"""The longest tile that a search may draw if its iterations are unrolled, and if they are not; the
rule's own may be longer."""
_WHOLE = 1 << 30
"""A size that divides no loop: TVM then makes the whole loop one tile."""
_REST = "None"
"""TVM's notation for the part of a split that takes the remaining iterations."""


def text(trace: s_tir.schedule.Trace) -> str:
    """Return TVM's trace as the JSON that records contain."""
    return _dump(_plain(trace.as_json()))


def _dump(trace: Any) -> str:
    return json.dumps(trace, separators=(",", ":"))


def _plain(value: Any) -> Any:
    """Convert TVM's containers and integers to Python's."""
    if value is None or isinstance(value, str | bool | float | int):
        return value
    if hasattr(value, "value"):
        return value.value
    if hasattr(value, "items"):
        return {str(k): _plain(v) for k, v in value.items()}
    return [_plain(v) for v in value]


def applied(trace: str, module: tvm.IRModule) -> s_tir.Schedule:
    """Return the schedule of a module after a trace."""
    sch = s_tir.Schedule(module)
    s_tir.schedule.Trace.apply_json_to_schedule(json.loads(trace), sch)
    return sch


def with_choices(trace: str, module: tvm.IRModule) -> str:
    """Return the same schedule with its tiles drawn, if they may have any size.

    The length of a vector is kept, and so is a tile whose size later steps rely on.
    """
    plain = applied(trace, module).mod
    tiles = _tiles(trace, module)
    return _drawn(trace, [t for t in tiles if _varies(trace, t, module, plain)])


@dataclass(frozen=True, kw_only=True)
class _Tile:
    """A step that splits a loop into parts of constant sizes and one part with the rest."""

    index: int
    """The index of the step in the trace."""
    sizes: tuple[int, ...]
    """The sizes of all parts, the outermost first."""

    def whole(self, part: int) -> tuple[int, ...]:
        """Return sizes that put the whole loop into one part."""
        return tuple(_WHOLE if n == part else 1 for n in range(len(self.sizes)))


def _tiles(trace: str, module: tvm.IRModule) -> list[_Tile]:
    """Return the splits of a trace, except those that make a vector."""
    steps, decisions = json.loads(trace)
    vectors = {step[1][0] for step in steps if step[0] == "Vectorize"}
    return [
        _Tile(index=index, sizes=_sizes(steps[: index + 1], decisions, module))
        for index, step in enumerate(steps)
        if step[0] == "Split" and step[1].count(_REST) == 1
        if not vectors & set(step[3])
    ]


def _sizes(steps: list[Step], decisions: list[Any], module: tvm.IRModule) -> tuple[int, ...]:
    """Return the sizes of the parts of the last step's split, including the remaining part."""
    earlier = [d for d in decisions if d[0] < len(steps)]
    sch = applied(_dump([steps, earlier]), module)
    return tuple(int(sch.get(part).extent) for part in sch.trace.insts[-1].outputs)


def _drawn(trace: str, tiles: Sequence[_Tile], sizes: Sequence[int] | None = None) -> str:
    """Return a trace with some of its tiles drawn, at their own sizes or at others."""
    steps, decisions = json.loads(trace)
    unrolled = {step[1][0] for step in steps if step[0] == "Unroll"}
    for before, tile in enumerate(tiles):
        place = tile.index + before
        kind, (loop, *_own), attributes, parts = steps[place]
        names = [f"tile{before}_{n}" for n in range(len(parts))]
        longest = max(tile.sizes[-1], _LONGEST[parts[-1] in unrolled])
        drawn = ["SamplePerfectTile", [loop], [len(parts), longest], names]
        steps[place : place + 1] = [drawn, [kind, [loop, *names], attributes, parts]]
        decisions.append([place, [*(sizes or tile.sizes)]])  # TVM computes the first one
    return _dump([steps, decisions])


def _varies(trace: str, tile: _Tile, module: tvm.IRModule, plain: tvm.IRModule) -> bool:
    """Whether a tile can be drawn, and the schedule is valid with the whole loop in any part."""
    try:
        same = applied(_drawn(trace, [tile]), module).mod
        for part in range(len(tile.sizes)):
            applied(_drawn(trace, [tile], tile.whole(part)), module)
    except Exception:  # TVM raises many types; any of them means that it is not valid
        return False
    return bool(tvm_ffi.structural_equal(same, plain))
