"""The machine and the software with which a session was measured."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Environment:
    """The machine, its load and the versions of the software."""

    cpu: str
    cpu_features: tuple[str, ...]
    """The features that code may use here; if `isa_cap` is set, the CPU may have more."""
    cores: int
    threads: int
    host: str
    load: float | None = None
    gpu: str | None = None
    driver: str | None = None
    isa_cap: str | None = None
    """The instruction set to which TVMSCOPE_ISA limited the host."""
    versions: dict[str, str] = field(default_factory=dict)
