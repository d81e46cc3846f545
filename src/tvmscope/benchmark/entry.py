"""The entries of a comparison: one per row."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

from tvmscope.core.measurement import Cause
from tvmscope.core.row import RowKey, Task
from tvmscope.measure.remote import Remote
from tvmscope.messages import Text


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One way to run the model, ready to be loaded in a worker, or the reason why it cannot be."""

    task: Task
    chain: Hashable = None
    """Entries of one chain are loaded one after the other, because one fills caches for the next
    (torch.compile)."""
    load: Remote[[Any], Any]
    """Makes the runner from `request`, in the worker."""
    request: Any = None
    """Plain data for `load`; it crosses the process boundary."""
    env: dict[str, str] = field(default_factory=dict)
    unavailable: Text | None = None
    """The reason when it cannot be measured here; such an entry is not loaded."""
    failure: Text | None = None
    """Why building what it runs failed; such an entry is a failed row."""
    cause: Cause | None = None
    """The kind of that failure, where it is known."""
    build_s: float | None = None
    warnings: tuple[Text, ...] = ()
    need_bytes: int = 0
    """The least memory of its worker: inputs, outputs and weights."""
    items: int | None = None
    """Items per run, if throughput was requested."""

    @property
    def key(self) -> RowKey:
        return self.task.key
