"""Matmul on column panels, for cores that begin two multiply-adds of whole blocks in a cycle.

parallel  batch x shares of panels x shares of rows
  rows      groups, whose data stay in the second-level cache
    panels
      k_o       chunks of a panel, which stay in the first-level cache while the group passes by
        rows      tiles of the group
          k         the sums stay in registers
            m, v, 16  unrolled rows and vectors of the panel
      epilogue  bias, activation on the finished rows of a panel

Such a core computes a tile of rows x a whole panel faster than the third-level cache brings the
panel, so that each panel must be used by all rows at once, and its chunk be in the nearest cache.
Where the second-level cache brings a panel at twice the rate at which it is used, the rule for all
cores suffices, which finishes one tile of rows after the other and keeps its sums in registers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvmscope.compiler.cost import tiles
from tvmscope.compiler.cost.ports import Ports, is_wide, ports
from tvmscope.compiler.cost.tiles import CHANNEL_BLOCK
from tvmscope.compiler.manifest.rule import ScheduleRule, Space
from tvmscope.compiler.manifest.switch import Switch
from tvmscope.compiler.schedules.blocks import Block, new_schedule
from tvmscope.compiler.schedules.cpu import prefetch
from tvmscope.compiler.schedules.cpu.blocks import (
    default_first,
    find_op,
    inline_epilogue,
    schedule_copies,
    vectorize_last,
)
from tvmscope.compiler.schedules.cpu.parameters import ROWS, SUMS
from tvmscope.compiler.tunable.knobs import int_of, params_of
from tvmscope.core.target import Target
from tvmscope.messages import marked

if TYPE_CHECKING:
    from tvm import s_tir, tirx

_NEAR_BYTES_PER_CYCLE = 32
_FAR_BYTES_PER_CYCLE = 8
"""What the second-level and the third-level cache are assumed to bring one core; not measured."""


@dataclass(frozen=True, kw_only=True)
class _Grid:
    """A product in tiles."""

    batch: int
    panels: int
    rows: int
    """Tiles of rows."""
    height: int
    depth: int
    panel: int

    @property
    def panel_bytes(self) -> int:
        return 4 * self.depth * self.panel

    @property
    def tile_bytes(self) -> int:
        """Data of a tile."""
        return 4 * self.depth * self.height

    def together(self, parts: _Parts) -> int:
        """The tiles of rows that pass by a chunk one after the other."""
        return self.rows // (parts.rows * parts.groups)


@dataclass(frozen=True)
class _Parts:
    """Into how many parts the panels and rows are divided among cores, and a core's rows again."""

    panels: int
    rows: int
    groups: int


def schedule_chunks(func: tirx.PrimFunc, target: Target) -> s_tir.Schedule | None:
    """Takes functions with a packed matmul of several tiles of rows, for such cores.

    Parameters: the tile's `rows`, the `chunk` of the reduction, how much of it is `unroll`ed, and
    whether the next panel is `prefetch`ed.
    """
    sch = new_schedule(func)
    block = find_op(sch, "matmul")
    if block is None:
        return None
    grid = _grid(sch, block, target)
    if grid.rows == 1 or not outruns(grid.height, target):
        return None
    core, params = ports(target), params_of(sch, block)
    epilogue = inline_epilogue(sch, block)
    schedule_copies(sch, before=block)
    *batch, m, n, k = sch.get_loops(block)
    parts = _best(grid, core, target.cores)
    fetches = bool(params.get("prefetch", int(prefetch.far(sch, block))))
    chunk = int_of(params, "chunk") or _chunk(grid, core, parts if fetches else None)
    chunk = chunk if grid.depth % chunk == 0 else grid.depth
    unroll = int_of(params, "unroll") or tiles.UNROLL
    unroll = unroll if chunk % unroll == 0 else 1
    m_p, m_g, m_t, m_i = sch.split(m, factors=[parts.rows, parts.groups, None, grid.height])
    n_p, n_t, n_v, n_i = sch.split(
        n, factors=[parts.panels, None, grid.panel // CHANNEL_BLOCK, CHANNEL_BLOCK]
    )
    k_o, k_i, k_u = sch.split(k, factors=[None, chunk // unroll, unroll])
    sch.reorder(*batch, n_p, m_p, m_g, n_t, k_o, m_t, k_i, k_u, m_i, n_v, n_i)
    sch.reverse_compute_at(epilogue, n_t, preserve_unit_loops=True)
    sch.parallel(sch.fuse(*batch, n_p, m_p))
    for loop in (k_u, m_i, n_v):
        sch.unroll(loop)
    sch.vectorize(n_i)
    vectorize_last(sch, epilogue)
    sch.decompose_reduction(block, k_o)
    if fetches:
        plan = prefetch.Plan(
            block_axis=len(sch.get(block).reads[-1].region) - 3,
            rows=chunk,
            repeat=len(batch),
            step=grid.height,
            repeats=grid.together(parts),
        )
        prefetch.mark(sch, m_t, plan)
    return sch


def outruns(height: int, target: Target) -> bool:
    """Whether the cores use a panel for tiles of `height` rows at over half of the rate at which
    the second-level cache brings it."""
    core = ports(target)
    used = 4 * CHANNEL_BLOCK * core.fmas(32 * CHANNEL_BLOCK) / height
    return is_wide(target) and used > core.l2_rate / 2


def _grid(sch: s_tir.Schedule, block: Block, target: Target) -> _Grid:
    *batch, m, n, k = (int(sch.get(loop).extent) for loop in sch.get_loops(block))
    height = int_of(params_of(sch, block), "rows") or tiles.rows(m, target)
    count, panel = 1, tiles.panel(target)
    for extent in batch:
        count *= extent
    return _Grid(
        batch=count, panels=n // panel, rows=m // height, height=height, depth=k, panel=panel
    )


def _chunk(grid: _Grid, core: Ports, fetching: _Parts | None) -> int:
    """The largest part of a panel that takes half of the first-level cache; the data pass by in the
    rest of it. If its tiles of rows prefetch the next panel's chunk, each in its turn asks for no
    more lines than a core can wait for."""
    most = core.l1_bytes // 2 // (4 * grid.panel)
    if fetching is not None:
        together = grid.together(fetching)
        most = min(most, prefetch.steps_at_once(4 * grid.panel, together))
    return tiles.chunk(grid.depth, most)


def _best(grid: _Grid, core: Ports, cores: int) -> _Parts:
    """The division that is predicted to take the fewest cycles; of equal ones the coarsest."""
    return min(
        _divisions(grid),
        key=lambda p: (_cycles(p, grid, core, cores), p.panels * p.rows, p.groups),
    )


def _divisions(grid: _Grid) -> Iterator[_Parts]:
    for panels in _divisors(grid.panels):
        for rows in _divisors(grid.rows):
            for groups in _divisors(grid.rows // rows):
                yield _Parts(panels, rows, groups)


def _cycles(parts: _Parts, grid: _Grid, core: Ports, cores: int) -> float:
    """Of the core that has most to do: its multiply-adds, and what it waits for."""
    turns = -(-grid.batch * parts.panels * parts.rows // cores)
    panels, rows = grid.panels // parts.panels, grid.rows // parts.rows
    step = grid.height * grid.panel // CHANNEL_BLOCK / core.fmas(32 * CHANNEL_BLOCK)
    near = rows // parts.groups * grid.tile_bytes <= core.l2_bytes // 2
    speed = _NEAR_BYTES_PER_CYCLE if near else _FAR_BYTES_PER_CYCLE
    weights = panels * parts.groups * grid.panel_bytes / _FAR_BYTES_PER_CYCLE
    data = panels * rows * grid.tile_bytes / speed
    return turns * (panels * rows * grid.depth * step + weights + data)


def _divisors(count: int) -> list[int]:
    return [n for n in range(1, count + 1) if count % n == 0]


def space(func: tirx.PrimFunc, target: Target) -> Space | None:
    """Values of the parameters that divide the reduction, those of the rule first."""
    sch = new_schedule(func)
    block = find_op(sch, "matmul")
    if block is None:
        return None
    grid = _grid(sch, block, target)
    if grid.rows == 1 or not outruns(grid.height, target):
        return None
    chunks = (c for c in (64, 96, 128, 192, 256, 384, grid.depth) if grid.depth % c == 0)
    fetches = prefetch.far(sch, block)
    core = ports(target)
    own = _chunk(grid, core, _best(grid, core, target.cores) if fetches else None)
    return {
        "chunk": default_first(own, chunks),
        "unroll": default_first(tiles.UNROLL, (1, 2, 8)),
        "prefetch": (1, 0) if fetches else (0, 1),
    }


RULE = ScheduleRule(
    name="matmul-chunks",
    devices=("cpu",),
    version=2,
    words=marked(
        "Matrix product on packed column panels: a chunk of a panel stays in the nearest cache."
    ),
    schedule=schedule_chunks,
    space=space,
    parameters={**ROWS, **SUMS},
    switch=Switch(name="matmul-chunks-schedule", needs=("packed-matmul",)),
)
