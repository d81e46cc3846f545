"""Chooses the configuration of a unit's kernel: of a record, a shipped winner or the cost model."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tvmscope.core.target import Target
from tvmscope.core.tuning import Choice
from tvmscope.cuda import config as configs
from tvmscope.cuda import gpus, shortlist, space, units, winners
from tvmscope.cuda.config import Config
from tvmscope.cuda.cubins import kernel_compiler
from tvmscope.cuda.gpus import Gpu
from tvmscope.cuda.library import call as library_calls
from tvmscope.cuda.units import Matmul, Unit
from tvmscope.cuda.winners import Winner
from tvmscope.errors import TvmscopeError
from tvmscope.messages import Text, msg


def unavailable(target: Target) -> Text | None:
    """Say why no kernel can be generated for a target; None if it can."""
    if importlib.util.find_spec("triton") is None:
        return msg(
            "Triton is not installed, so no CUDA kernel was generated: pip install 'triton>=3.6'"
        )
    try:
        gpus.gpu_of(target.arch)
    except TvmscopeError as e:
        return msg("no CUDA kernel was generated: {reason}", reason=e.message)
    if target.arch not in gpus.GPUS and not kernel_compiler.assembles(target.arch):
        return msg(
            "no CUDA kernel was generated: this Triton does not assemble code for {arch}",
            arch=target.arch,
        )
    return None


def gpu_for(target: Target) -> Gpu:
    """Return the GPU for which a target's kernels are chosen: the device itself where the target
    describes one, else the table's of its architecture."""
    return gpus.gpu_with(target.arch, target.attrs)


SHIPPED = Path(gpus.__file__).parent / "shipped_winners"
"""Measured winners that come with the package, one file per architecture."""


def unmeasured(arch: str) -> Text | None:
    """Say that nothing was measured on an architecture; None if winners for it are shipped."""
    measured = sorted(file.stem for file in SHIPPED.glob("sm_*.jsonl"))
    if arch in measured:
        return None
    return msg(
        "generated kernels for {arch} have been compiled, but never run or timed by this project, "
        "which measures on {measured}: a cost model alone chooses them; tvmscope tune measures "
        "them on your GPU",
        arch=arch,
        measured=measured,
    )


LARGE_FLOPS = 1e9
"""From this work on, a product that no record has is left to cuBLASLt: over 32 such products on an
H200 its first algorithm took 0.58 to 1.00 of the time of the cost model's first choice, 0.83 in the
geometric mean; below a third of it, the generated kernel was faster."""


class Chooser:
    """Chooses for one target; equal units get equal configurations."""

    def __init__(
        self,
        target: Target,
        choices: Mapping[str, Choice],
        *,
        recorded: bool = True,
        dependent: bool = True,
        library: bool | tuple[str, ...] = False,
    ) -> None:
        """`recorded` uses measured configurations, `dependent` allows programmatic dependent
        launch, `library` a library's call if that was measured to be the fastest: of all
        libraries, of none, or of these."""
        self.gpu = gpu_for(target)
        file = SHIPPED / f"{target.arch}.jsonl"
        known = recorded and file.is_file()
        self.shipped = winners.load_winners(file) if known else winners.Winners()
        self.choices = choices if recorded else {}
        self.dependent = dependent
        self.library = library
        self._known: dict[str, Config | None] = {}

    def __call__(self, unit: Unit) -> Config | None:
        """Return the configuration; None if no template computes the unit."""
        if unit.key not in self._known:
            config = self._recorded(unit) or self._best(unit)
            if config is not None and not self.dependent:
                config = replace(config, pdl=0)
            self._known[unit.key] = config
        return self._known[unit.key]

    def prefers(self, one: Unit, several: Sequence[Unit]) -> bool:
        """Whether one kernel is faster than several: by their measured times, or by the cost model
        if not all of them were measured."""
        for time_us in (self._measured_us, self._estimated_us):
            times = [time_us(unit) for unit in (one, *several)]
            known = [t for t in times if t is not None]
            if len(known) == len(times):
                return known[0] < sum(known[1:])
        return False

    def _measured_us(self, unit: Unit) -> float | None:
        found = self._shipped_winner(unit)
        if found is not None:
            return found.call_cold_us if self._calls(unit, found) else found.cold_us
        twin = self._shipped_winner(_in_float16(unit)) if unit.dtype == "bfloat16" else None
        return twin.cold_us if twin is not None else None

    def _estimated_us(self, unit: Unit) -> float | None:
        """Return the model's time; it knows no call, but a record says how much faster one is."""
        try:
            time = shortlist.best(unit, self.gpu, 1)[0].us
        except TvmscopeError:  # no template computes it
            return None
        found = self._shipped_winner(unit)
        if found is not None and found.call_cold_us and self._calls(unit, found):
            return time * found.call_cold_us / found.cold_us
        return time

    def _shipped_winner(self, unit: Unit) -> Winner | None:
        """Return the shipped record whose call or configuration can compute the unit."""
        for key in (unit.key, unit.dense.key):
            found = self.shipped.by_unit.get(key)
            if found and (self._calls(unit, found) or self._legal(unit, found.config)):
                return found
        return None

    def _calls(self, unit: Unit, found: Winner) -> bool:
        call = found.call
        return bool(call and call.is_allowed(self.library) and self._legal(unit, call))

    def _recorded(self, unit: Unit) -> Config | None:
        choice = self.choices.get(unit.key)
        if choice is not None and choice.candidate.params:
            given = configs.from_json(dict(choice.candidate.params))
            if given.is_allowed(self.library):
                return self._legal(unit, given)
        if (found := self._shipped_winner(unit)) is None:
            return self._of_float16(unit)
        return found.call if self._calls(unit, found) else self._launched(unit, found.config)

    def _of_float16(self, unit: Unit) -> Config | None:
        """Return the generated winner of the same unit in float16 for one in bfloat16: the kernel
        moves and multiplies as many bytes. A library's call was measured for its own type only."""
        if unit.dtype != "bfloat16":
            return None
        found = self._shipped_winner(_in_float16(unit))
        config = self._legal(unit, found.config) if found is not None else None
        return self._launched(unit, config) if config is not None else None

    def _launched(self, unit: Unit, config: Config) -> Config:
        """Take the tile from a shipped winner. Not every launch mode was measured with it: weights
        are prefetched early only if that is known to cost nothing."""
        return replace(config, pdl=min(config.pdl, shortlist.launch(unit, self.gpu)))

    def _legal(self, unit: Unit, config: Config) -> Config | None:
        return config if space.why_illegal(unit, config, self.gpu) is None else None

    def _best(self, unit: Unit) -> Config | None:
        if isinstance(unit, Matmul) and unit.flops >= LARGE_FLOPS and unit.dtype != "float32":
            # the last one has the weight n x k, if it is one
            *_, call = (None, *library_calls.configs(unit, 2))
            if call and call.is_allowed(self.library) and self._legal(unit, call) is not None:
                return call
        try:
            return shortlist.best(unit, self.gpu, 1)[0].config
        except TvmscopeError:  # no template computes it
            return None


def _in_float16(unit: Unit) -> Unit:
    """Return the same unit of bfloat16 in float16."""
    written = json.dumps(unit.to_json()).replace('"bfloat16"', '"float16"')
    return units.from_json(json.loads(written))
