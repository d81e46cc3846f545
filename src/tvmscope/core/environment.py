"""Where and with what a session was measured."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Environment:
    """The machine, its load and the versions that were used."""

    cpu: str
    cpu_features: tuple[str, ...]
    """What the code may use here: where `isa_cap` is set, the CPU itself may have more."""
    cores: int
    threads: int
    host: str
    load: float | None = None
    gpu: str | None = None
    driver: str | None = None
    isa_cap: str | None = None
    """The instruction set that TVMSCOPE_ISA limited the host to."""
    versions: dict[str, str] = field(default_factory=dict)
