"""Which configuration a unit's kernel gets: a tuning record's, else the cost model's best."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping

from tvmscope.core.target import Target
from tvmscope.core.tuning import Choice
from tvmscope.cuda import config as configs
from tvmscope.cuda import cost, gpus, space
from tvmscope.cuda.config import Config
from tvmscope.cuda.units import Unit
from tvmscope.errors import TvmscopeError


def unavailable(target: Target) -> str | None:
    """Why no kernel can be generated for a target; None where it can."""
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed, so no CUDA kernel was generated: pip install 'triton>=3.6'"
    try:
        gpus.gpu_of(target.arch)
    except TvmscopeError as e:
        return f"no CUDA kernel was generated: {e}"
    return None


class Chooser:
    """Answers for one target; equal units get equal answers."""

    def __init__(self, target: Target, choices: Mapping[str, Choice]) -> None:
        self.gpu = gpus.gpu_of(target.arch)
        self.choices = choices
        self._known: dict[str, Config | None] = {}

    def __call__(self, unit: Unit) -> Config | None:
        """The configuration; None where no template computes the unit."""
        if unit.key not in self._known:
            self._known[unit.key] = self._recorded(unit) or self._best(unit)
        return self._known[unit.key]

    def _recorded(self, unit: Unit) -> Config | None:
        choice = self.choices.get(unit.key)
        if choice is None:
            return None
        config = configs.from_json(dict(choice.candidate.params))
        return config if space.why_illegal(unit, config, self.gpu) is None else None

    def _best(self, unit: Unit) -> Config | None:
        try:
            return cost.best(unit, self.gpu, 1)[0].config
        except TvmscopeError:  # no template of ours computes it
            return None
