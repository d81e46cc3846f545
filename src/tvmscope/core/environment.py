"""Where and with what a session was measured."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Environment:
    """The machine, its load and the versions that were used."""

    cpu: str
    cpu_features: tuple[str, ...]
    cores: int
    threads: int
    host: str
    load: float | None = None
    gpu: str | None = None
    driver: str | None = None
    versions: dict[str, str] = field(default_factory=dict)
