"""The optimisations that an ablation can disable: from the manifests of passes and schedule rules,
and others: the target's features, threads and tuning records."""

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
    """An optimisation by its name, and everything that is disabled with it."""

    name: str
    passes: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """The overrides that disable it, beside the passes and schedule rules."""
    needs: tuple[str, ...] = ()
    """Other optimisations that it depends on; alone it runs with these."""
    target: str | None = None
    """The target that lacks it."""
    threads: int | None = None
    tuned: bool = False
    """Whether it is the choices of tuning records."""
    graph: bool = False
    """Whether it is the CUDA graph in which a run is recorded."""
    alone: bool = True
    """Whether it has any effect if all others are off."""


FEATURES = Optimisation(name="target-features", target="cpu:x86-64")
THREADS = Optimisation(name="threads", threads=1, alone=False)
TUNING = Optimisation(name="tuning", tuned=True, alone=False)
GRAPH = Optimisation(name="cuda-graph", graph=True, alone=False)


def of_device(device: str) -> tuple[Optimisation, ...]:
    """Return everything that can be disabled on a device, in the order in which it takes effect."""
    return derived(all_passes(), rules(device), device)


def built_in(device: str) -> tuple[Optimisation, ...]:
    """Return what can be disabled without other packages."""
    return derived(PASSES, {"cpu": cpu.RULES, "cuda": cuda.RULES}[device], device)


def derived(
    known: Iterable[Pass], offered: Iterable[ScheduleRule], device: str
) -> tuple[Optimisation, ...]:
    """Return what manifests say can be disabled.

    Code without any schedule does not run on a GPU, so nothing runs alone there.
    """
    found: dict[str, Optimisation] = {}
    for each in known:
        for switch in each.switches if device in each.ours else ():
            left_out = () if switch.overrides else (each.name,)
            found[switch.name] = _joined(found.get(switch.name), switch, passes=left_out)
    for rule in offered:
        for switch in (each for each in (rule.switch, rule.shared_switch) if each):
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
    """Return an optimisation extended by one more manifest."""
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
    """Return the selected optimisations; all if none was named."""
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
    """Return the options with all of these disabled."""
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
    """Return the options with everything disabled but this one and its dependencies."""
    kept = {switch.name, *switch.needs}
    return off((s for s in known if s.name not in kept), base)
