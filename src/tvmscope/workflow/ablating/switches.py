"""The optimisations that an ablation can switch off: what the manifests of passes and schedule
rules say, and what is no pass: the target's features, threads and tuning records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tvmscope.compiler.manifest.pass_ import Pass
from tvmscope.compiler.manifest.rule import ScheduleRule
from tvmscope.compiler.manifest.switch import Switch
from tvmscope.compiler.passes import PASSES, all_passes
from tvmscope.compiler.schedules import cpu, cuda, rules
from tvmscope.core.options import CompileOptions
from tvmscope.errors import UsageError
from tvmscope.messages import msg


@dataclass(frozen=True, kw_only=True)
class Optimisation:
    """An optimisation by its name, and all that is left out with it."""

    name: str
    passes: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """What switches it off, beside passes and schedule rules to leave out."""
    needs: tuple[str, ...] = ()
    """Others without which it has nothing to work on; alone it runs with these."""
    target: str | None = None
    """The target that lacks it."""
    threads: int | None = None
    tuned: bool = False
    """Whether it is what tuning records choose."""
    graph: bool = False
    """Whether it is the CUDA graph that a run is recorded in."""
    alone: bool = True
    """Whether it can do anything where all others are off."""


FEATURES = Optimisation(name="target-features", target="cpu:x86-64")
THREADS = Optimisation(name="threads", threads=1, alone=False)
TUNING = Optimisation(name="tuning", tuned=True, alone=False)
GRAPH = Optimisation(name="cuda-graph", graph=True, alone=False)


def of_device(device: str) -> tuple[Optimisation, ...]:
    """All that can be switched on a device, in the order in which it takes effect."""
    return derived(all_passes(), rules(device), device)


def built_in(device: str) -> tuple[Optimisation, ...]:
    """What can be switched where no other package brings anything."""
    return derived(PASSES, {"cpu": cpu.RULES, "cuda": cuda.RULES}[device], device)


def derived(
    known: Iterable[Pass], offered: Iterable[ScheduleRule], device: str
) -> tuple[Optimisation, ...]:
    """What manifests say can be switched.

    Code without any schedule does not run on a GPU, so nothing runs alone there.
    """
    found: dict[str, Optimisation] = {}
    for each in known:
        for switch in each.switches if device in each.ours else ():
            left_out = () if switch.overrides else (each.name,)
            found[switch.name] = _joined(found.get(switch.name), switch, passes=left_out)
    for rule in offered:
        for switch in (rule.switch,) if rule.switch else ():
            found[switch.name] = _joined(found.get(switch.name), switch, rules=(rule.name,))
    if device == "cpu":
        return (FEATURES, THREADS, *found.values(), TUNING)
    return (GRAPH, *(replace(each, alone=False) for each in found.values()), TUNING)


def _joined(
    known: Optimisation | None,
    switch: Switch,
    *,
    passes: tuple[str, ...] = (),
    rules: tuple[str, ...] = (),
) -> Optimisation:
    """An optimisation with one more manifest's part in it."""
    known = known or Optimisation(name=switch.name)
    return replace(
        known,
        passes=(*known.passes, *passes),
        rules=(*known.rules, *rules),
        overrides={**known.overrides, **switch.overrides},
        needs=tuple(dict.fromkeys((*known.needs, *switch.needs))),
        alone=known.alone and switch.alone,
    )


def choose(known: Sequence[Optimisation], only: Sequence[str]) -> list[Optimisation]:
    """Those that were asked for; all where none was named."""
    names = [switch.name for switch in known]
    unknown = [name for name in only if name not in names]
    if unknown:
        raise UsageError(
            msg(
                "no optimisation named {unknown}; there are {known}",
                unknown=unknown,
                known=_list(names),
            )
        )
    return [switch for switch in known if not only or switch.name in only]


def _list(names: Iterable[str]) -> str:
    return ", ".join(names)


def off(switches: Iterable[Optimisation], base: CompileOptions) -> CompileOptions:
    """The options with all of these switched off."""
    passes, rules, overrides = list(base.disabled_passes), [], dict(base.overrides)
    choices = base.choices
    rules += overrides.get("disabled_rules", ())
    for switch in switches:
        passes += switch.passes
        rules += switch.rules
        overrides |= switch.overrides
        choices = {} if switch.tuned else choices
    if rules:
        overrides["disabled_rules"] = tuple(dict.fromkeys(rules))
    left = tuple(dict.fromkeys(passes))
    return replace(base, disabled_passes=left, overrides=overrides, choices=choices)


def alone(
    switch: Optimisation, known: Sequence[Optimisation], base: CompileOptions
) -> CompileOptions:
    """The options with everything off but this one, and what it needs."""
    kept = {switch.name, *switch.needs}
    return off((s for s in known if s.name not in kept), base)
