"""Aligns the kernels of all backends by the model's operators, in one table.

Every backend fuses in its own way. Two kernels belong together when they compute a common source
operator, directly or through others: TVM's fused convolution, batch norm and activation meets ONNX
Runtime's convolution node in one group.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from tvmscope.core.profile import KernelTime
from tvmscope.core.row import RowKey
from tvmscope.core.session import Session

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, kw_only=True)
class Group(Generic[K]):
    """Source operators that share kernels on some side, and the time that each side takes."""

    source_ops: tuple[str, ...]
    """Empty for kernels whose source operators are unknown."""
    times_s: dict[K, float] = field(default_factory=dict)


def align(session: Session) -> tuple[Group[RowKey], ...]:
    """Align all kernels of all profiles, in the order in which their operators first run."""
    return groups((p.key, kernel) for p in session.profiles for kernel in p.kernels)


def groups(kernels: Iterable[tuple[K, KernelTime]]) -> tuple[Group[K], ...]:
    """Return the connected components of (side, kernel) pairs that share source operators."""
    pairs = list(kernels)
    leader: dict[str, str] = {}

    def find(op: str) -> str:
        while leader[op] != op:
            leader[op] = leader[leader[op]]  # shorter paths for the next search
            op = leader[op]
        return op

    for _, kernel in pairs:
        for op in kernel.source_ops:
            leader.setdefault(op, op)
            leader[find(op)] = find(kernel.source_ops[0])
    members: dict[str | None, list[str]] = {}
    for op in leader:
        members.setdefault(find(op), []).append(op)
    times: dict[str | None, dict[K, float]] = {}
    for side, kernel in pairs:
        key = find(kernel.source_ops[0]) if kernel.source_ops else None
        spent = times.setdefault(key, {})
        spent[side] = spent.get(side, 0.0) + kernel.total_s
    return tuple(
        Group(source_ops=tuple(members.get(key, ())), times_s=spent) for key, spent in times.items()
    )
