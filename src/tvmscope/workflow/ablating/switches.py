"""The optimisations that an ablation can switch off, and what each one consists of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tvmscope.core.options import CompileOptions
from tvmscope.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Switch:
    """An optimisation by its name."""

    name: str
    passes: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    overrides: dict[str, Any] = field(default_factory=dict)
    """What switches it off, beside passes and schedule rules to leave out."""
    needs: tuple[str, ...] = ()
    """Others without which it has nothing to work on; alone it runs with these."""
    target: str | None = None
    """The target that lacks it."""
    threads: int | None = None
    tuned: bool = False
    """Whether it is what tuning records choose."""
    alone: bool = True
    """Whether it can do anything where all others are off."""


TUNING = Switch(name="tuning", tuned=True, alone=False)
CPU: tuple[Switch, ...] = (
    Switch(name="target-features", target="cpu:x86-64"),
    Switch(name="threads", threads=1, alone=False),
    Switch(name="fold-batch-norm", passes=("fold-batch-norm",)),
    Switch(name="batch-in-parts", passes=("split-batch",), alone=False),
    Switch(name="fusion", passes=("fuse-ops", "fuse-tir")),
    Switch(name="layout", passes=("block-layout",)),
    Switch(name="winograd", overrides={"winograd": False}, needs=("layout", "winograd-schedule")),
    Switch(name="packed-matmul", passes=("pack-matmul",)),
    Switch(name="attention", passes=("fuse-attention",)),
    Switch(name="row-kernels", passes=("row-kernels",)),
    Switch(name="subpixel-transposed", passes=("subpixel-transposed",)),
    Switch(name="fast-math", passes=("fast-math",)),
    Switch(name="conv2d-schedule", rules=("conv2d",), needs=("layout",)),
    Switch(name="depthwise-schedule", rules=("depthwise",), needs=("layout",)),
    Switch(name="matmul-schedule", rules=("matmul",), needs=("packed-matmul",)),
    Switch(name="winograd-schedule", rules=("winograd",), alone=False),
    Switch(name="attention-schedule", rules=("attention",), needs=("attention",)),
    Switch(name="rows-schedule", rules=("rows",), needs=("row-kernels",)),
    Switch(name="pooling-schedule", rules=("pooling",)),
    Switch(name="reduction-schedule", rules=("reduction",)),
    Switch(name="movement-schedule", rules=("movement",)),
    Switch(name="fallback-schedule", rules=("fallback",)),
    TUNING,
)
CUDA: tuple[Switch, ...] = (
    Switch(name="fold-batch-norm", passes=("fold-batch-norm",), alone=False),
    Switch(name="fusion", passes=("fuse-ops", "fuse-tir"), alone=False),
    *(
        Switch(name=f"{rule}-schedule", rules=(rule,), alone=False)
        for rule in ("dlight-matmul", "dlight-gemv", "dlight-reduction", "dlight-general-reduction")
    ),
    TUNING,
)
"""Code without any schedule does not run on a GPU, so nothing runs alone there."""


def choose(known: Sequence[Switch], only: Sequence[str]) -> list[Switch]:
    """Those that were asked for; all where none was named."""
    names = [switch.name for switch in known]
    unknown = [name for name in only if name not in names]
    if unknown:
        raise UsageError(f"no optimisation named {', '.join(unknown)}; there are {_list(names)}")
    return [switch for switch in known if not only or switch.name in only]


def _list(names: Iterable[str]) -> str:
    return ", ".join(names)


def off(switches: Iterable[Switch], base: CompileOptions) -> CompileOptions:
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


def alone(switch: Switch, known: Sequence[Switch], base: CompileOptions) -> CompileOptions:
    """The options with everything off but this one, and what it needs."""
    kept = {switch.name, *switch.needs}
    return off((s for s in known if s.name not in kept), base)
