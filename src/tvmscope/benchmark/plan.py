"""What a comparison consists of: one entry per row."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, Self

from tvmscope.core.row import RowKey, Task
from tvmscope.messages import Text


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One way of running the model, ready to be loaded in a worker, or why it cannot be."""

    task: Task
    build: Callable[[], Self] | None = None
    """Compiles what it runs and returns the entry complete; called once, before `load`."""
    chain: Hashable = None
    """Entries of one chain are built and loaded one after the other: they share work."""
    load: str = ""
    """Dotted path `module:function` of `load(request) -> Runner`."""
    request: Any = None
    """Plain data for `load`; it crosses the process boundary."""
    env: dict[str, str] = field(default_factory=dict)
    unavailable: Text | None = None
    """The reason when it cannot be measured here; such an entry needs no `load`."""
    failure: Text | None = None
    """Why building what it runs failed; such an entry is a failed row."""
    build_s: float | None = None
    warnings: tuple[Text, ...] = ()
    items: int | None = None
    """Items per run, where throughput was asked for."""

    @property
    def key(self) -> RowKey:
        return self.task.key
