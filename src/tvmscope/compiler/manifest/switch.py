"""How an ablation switches off a pass or a schedule rule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tvmscope.compiler.manifest.names import check_name


@dataclass(frozen=True, kw_only=True)
class Switch:
    """A manifest's part in an optimisation; passes that name the same one are left out together."""

    name: str
    """The name of the optimisation, as `ablate --only` takes it."""
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """Settings that switch it off while the pass runs; if empty, the pass is left out."""
    needs: tuple[str, ...] = ()
    """Other optimisations that it depends on; alone it runs with these."""
    alone: bool = True
    """Whether it has an effect if all others are off."""

    def __post_init__(self) -> None:
        for name in (self.name, *self.needs):
            check_name(name, "optimisation")
