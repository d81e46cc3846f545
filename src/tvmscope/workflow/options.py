"""Everything a user can ask for in one frozen value; the command line and the API both build it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tvmscope.core.options import CompileOptions, LoadOptions, MeasureOptions
from tvmscope.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Options:
    """A request: which backends on which targets, and how to load, compile, measure and check."""

    backends: tuple[str, ...] = ()
    """Names to measure; empty means all."""
    targets: tuple[str, ...] = ("auto",)
    precisions: tuple[str, ...] = ("float32",)
    graph: bool | None = None
    """CUDA graphs: with, without, or (None) both as separate rows."""
    threads: int | None = None
    tolerance: float | None = None
    """Largest accepted max|a-b| / max|ref|; by default 1e-4 in float32, 2e-2 in half precision."""
    atol: float = 0.0
    """Accepted absolute error, added to the relative one."""
    output: Path | None = None
    force: bool = False
    load: LoadOptions = field(default_factory=LoadOptions)
    compile: CompileOptions = field(default_factory=CompileOptions)
    measure: MeasureOptions = field(default_factory=MeasureOptions)
    command: str = "tvmscope (Python API)"
    example_inputs: Sequence[Any] | None = None
    """Example inputs of an `nn.Module` that was given in memory."""

    @classmethod
    def of(cls, *, inputs: Sequence[Any] | None = None, **flat: Any) -> Options:
        """Build from flat keywords (`target="cpu", duration_s=2, pipeline="tvm"`)."""
        parts: dict[str, dict[str, Any]] = {"load": {}, "compile": {}, "measure": {}, "": {}}
        owners = {
            "load": LoadOptions,
            "compile": CompileOptions,
            "measure": MeasureOptions,
            "": cls,
        }
        for alias, name in (("target", "targets"), ("precision", "precisions")):
            if alias in flat:
                value = flat.pop(alias)
                flat[name] = tuple(value.split(",")) if isinstance(value, str) else tuple(value)
        for key, value in flat.items():
            homes = [
                home
                for home, owner in owners.items()
                if key in {f.name for f in dataclasses.fields(owner)}
                and not (home == "compile" and key in ("precision", "threads", "graph"))
            ]
            if not homes:
                raise UsageError(f"unknown option '{key}'; see tvmscope.workflow.options.Options")
            for home in homes:  # `seed` means the same everywhere
                parts[home][key] = value
        return cls(
            **parts[""],
            load=LoadOptions(**parts["load"]),
            compile=CompileOptions(**parts["compile"]),
            measure=MeasureOptions(**parts["measure"]),
            example_inputs=inputs,
        )
