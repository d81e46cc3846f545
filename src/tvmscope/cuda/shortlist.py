"""Chooses the configurations of a unit that are worth a measurement, by the cost model's times.

The model ranks tiles. The weight's layout and the launch mode have no effect on its time, so that
they follow from measured pairs.
"""

from __future__ import annotations

import dataclasses

from tvmscope.cuda.config import Config
from tvmscope.cuda.contraction import contraction_of
from tvmscope.cuda.cost import Estimate, estimates
from tvmscope.cuda.gpus import Gpu
from tvmscope.cuda.space import layouts, uses_wgmma
from tvmscope.cuda.units import Unit
from tvmscope.errors import UsageError
from tvmscope.messages import msg

_SHORT_US = 20.0
"""The launch mode does not matter for kernels that take longer."""
_MOSTLY_WEIGHTS = 0.5
"""Below, fetching the weights first costs more than it saves: 1.37 times the time in the median of
142 measured pairs; above, there was no difference."""
_WIDE = 128
"""From this number of columns in a tile on, warp groups are faster with the sum axis of the weight
contiguous: 0.83 times the time over 245 measured pairs; below, 1.03 to 1.25 times."""


def best(unit: Unit, gpu: Gpu, n: int = 25) -> list[Estimate]:
    """Return the `n` most promising configurations, the fastest first, of several tiles.

    With ten or more, the last ones are variants that the model cannot distinguish: the first tiles
    with the weight packed in the other layout, and launched in other ways.
    """
    ranked = sorted(estimates(unit, gpu), key=lambda e: (e.us, _order(e.config)))
    if not ranked:
        raise UsageError(
            msg("{unit}: no template computes this on {name}", unit=unit.label, name=gpu.name)
        )
    chosen = [_finished(unit, e, gpu) for e in _diverse(ranked, n)]
    if n < 10:
        return chosen
    twins = _layout_twins(unit, chosen) + _launch_twins(chosen, gpu)
    return [*chosen[: max(1, n - len(twins))], *twins]


def _order(config: Config) -> tuple[int, ...]:
    """Order equal estimates: usual steps and depths first, then fewer parts and smaller blocks; a
    total order, so that the choice does not depend on the enumeration."""
    return (
        abs(config.k - 64),
        config.split,
        abs(config.stages - 4),
        config.warps,
        config.m * config.n,
        config.m,
        config.stages,
        config.k,
    )


def _diverse(ranked: list[Estimate], n: int) -> list[Estimate]:
    """Return the first `n`, with at most four variants (step, depth, warps) of the two best tiles
    and two of others: the tile matters most, and the model is least sure of the rest."""
    taken: list[Estimate] = []
    seen: dict[tuple[str, int, int, int], int] = {}
    for candidate in ranked:
        c = candidate.config
        tile = (c.template, c.m, c.n, c.split)
        rank = list(seen).index(tile) if tile in seen else len(seen)
        if seen.setdefault(tile, 0) < (4 if rank < 2 else 2):
            seen[tile] += 1
            taken.append(candidate)
    return taken[:n]


def _with(estimate: Estimate, **changes: int | str) -> Estimate:
    # callers name fields of a configuration, each with a value of its own type
    config = dataclasses.replace(estimate.config, **changes)  # type: ignore[arg-type]
    return dataclasses.replace(estimate, config=config)


def _finished(unit: Unit, estimate: Estimate, gpu: Gpu) -> Estimate:
    """Add the weight's layout and the launch mode, which have no effect on the model's time."""
    c, config = contraction_of(unit), estimate.config
    layout = config.layout
    if c is not None and config.template in ("conv2d", "matmul") and "nk" in layouts(c):
        wide = uses_wgmma(c, config, gpu) and config.n >= _WIDE
        layout = "nk" if wide and c.k * c.item_bytes % 16 == 0 else layout
    return _with(estimate, layout=layout, pdl=launch(unit, gpu))


def launch(unit: Unit, gpu: Gpu) -> int:
    """Return how a kernel is launched: as early as the GPU allows, and with a prefetch of its
    weights before the wait if they are most of its traffic."""
    if not gpu.has_dependent_launch:
        return 0
    weight = unit.tensor("weight")
    if weight is None or weight.size_bytes < _MOSTLY_WEIGHTS * unit.moved_bytes:
        return 1
    return 2


def _layout_twins(unit: Unit, chosen: list[Estimate]) -> list[Estimate]:
    c = contraction_of(unit)
    if c is None or len(layouts(c)) < 2:
        return []
    tiles = [e for e in chosen if e.config.template in ("conv2d", "matmul", "persistent")]
    return [_with(e, layout="kn" if e.config.layout == "nk" else "nk") for e in tiles[:3]]


def _launch_twins(chosen: list[Estimate], gpu: Gpu) -> list[Estimate]:
    if not gpu.has_dependent_launch or chosen[0].us > _SHORT_US:
        return []
    levels = [level for level in range(3) if level != chosen[0].config.pdl]
    return [_with(e, pdl=level) for e in chosen[:2] for level in levels]
