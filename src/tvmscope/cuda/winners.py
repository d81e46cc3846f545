"""Measured winners: the configuration that a GPU ran fastest, and the library's time.

A file of winners belongs to one architecture. Its first line has the version of each template that
was measured; winners of another version are void, and those of other templates stay. A unit with
another memory layout (a slice of a wider tensor, another pitch) uses the winner of its dense form
if that configuration is legal.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tvmscope.cuda import units
from tvmscope.cuda.config import VERSIONS, Config, from_json
from tvmscope.cuda.gpus import Gpu
from tvmscope.cuda.shortlist import best
from tvmscope.cuda.space import why_illegal
from tvmscope.cuda.units import Unit
from tvmscope.errors import SchemaError
from tvmscope.messages import msg
from tvmscope.storage.codec import decode, encode

SCHEMA_VERSION = 1
WORTH = 0.97
"""A library's call may take at most this share of the best generated kernel's time: a model that
uses one needs the library to load."""


@dataclass(frozen=True, kw_only=True)
class Winner:
    """The fastest correct configuration of a unit. Times are medians in microseconds: "cold" with
    weights that are not in the L2 cache, "hot" with weights that are."""

    config: Config
    cold_us: float
    hot_us: float
    gpu: str
    library: str | None = None
    """The library function that PyTorch calls for the unit, and its times."""
    library_cold_us: float | None = None
    library_hot_us: float | None = None
    call: Config | None = None
    """A library's call that is clearly faster than `config`, and its times."""
    call_cold_us: float | None = None
    call_hot_us: float | None = None


class Winners:
    """Winners by unit key."""

    def __init__(self, by_unit: Mapping[str, Winner] | None = None) -> None:
        self.by_unit = dict(by_unit or {})

    def choose(self, unit: Unit, gpu: Gpu) -> Config:
        """Return the measured configuration of a unit, or the cost model's first."""
        for key in (unit.key, unit.dense.key):
            found = self.by_unit.get(key)
            if found is not None and why_illegal(unit, found.config, gpu) is None:
                return found.config
        return best(unit, gpu, 1)[0].config

    def save(self, path: Path) -> None:
        """Write one line per unit, sorted, so that differences between versions can be read."""
        head = json.dumps({"schema_version": SCHEMA_VERSION, "templates": VERSIONS})
        lines = [
            json.dumps({"key": key, **encode(winner)}, separators=(",", ":"))
            for key, winner in sorted(self.by_unit.items())
        ]
        path.write_text("\n".join([head, *lines]) + "\n")


def load_winners(path: Path, *, outdated: bool = False) -> Winners:
    """Return the winners of a file's current templates, or only the `outdated` ones; raise if the
    file has another schema."""
    head, *lines = path.read_text().splitlines() or [""]
    known = json.loads(head or "{}")
    version = known.get("schema_version")
    if version != SCHEMA_VERSION:
        raise SchemaError(
            msg(
                "{path}: kernel winners of schema {version}, not {newest}",
                path=path,
                version=version,
                newest=SCHEMA_VERSION,
            )
        )
    measured = known.get("templates", {})

    def is_current(config: Config) -> bool:
        return bool(measured.get(config.template, 1) == VERSIONS[config.template])

    found: dict[str, Winner] = {}
    for row in map(json.loads, lines):
        winner = decode(Winner, row)
        old_call = winner.call is not None and not is_current(winner.call)
        if outdated and (old_call or not is_current(winner.config)):
            found[row["key"]] = winner
        elif not outdated and is_current(winner.config):
            found[row["key"]] = replace(winner, call=None) if old_call else winner
    return Winners(found)


def distil(measured: Iterable[Mapping[str, Any]]) -> Winners:
    """Return the winners among the device script's measurements; wrong candidates cannot win."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for row in measured:
        if row.get("correct") and row.get("cold_us"):
            groups.setdefault(units.from_json(row["unit"]).key, []).append(row)
    out: dict[str, Winner] = {}
    for key, rows in groups.items():
        configs = [(r, from_json(r["config"])) for r in rows if "config" in r]
        ours = [r for r, c in configs if not c.of_library]
        calls = [r for r, c in configs if c.of_library]
        theirs = [r for r in rows if "library" in r]
        if ours:
            winner = min(ours, key=lambda r: _median(r, "cold_us"))
            library = min(theirs, key=lambda r: _median(r, "cold_us"), default=None)
            call = min(calls, key=lambda r: _median(r, "cold_us"), default=None)
            if call and _median(call, "cold_us") > WORTH * _median(winner, "cold_us"):
                call = None
            out[key] = Winner(
                config=from_json(winner["config"]),
                cold_us=_median(winner, "cold_us"),
                hot_us=_median(winner, "hot_us"),
                gpu=winner["gpu"],
                library=library["library"] if library else None,
                library_cold_us=_median(library, "cold_us") if library else None,
                library_hot_us=_median(library, "hot_us") if library else None,
                call=from_json(call["config"]) if call else None,
                call_cold_us=_median(call, "cold_us") if call else None,
                call_hot_us=_median(call, "hot_us") if call else None,
            )
    return Winners(out)


def _median(row: Mapping[str, Any], name: str) -> float:
    return round(float(statistics.median(row[name])), 3)
