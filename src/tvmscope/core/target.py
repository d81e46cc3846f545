"""The machine that code is compiled for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Target:
    """A compilation target, free of TVM. `features` are LLVM names ("avx2", "fma") without sign."""

    kind: Literal["llvm", "cuda"]
    arch: str
    features: tuple[str, ...] = ()
    """All features that the code may use."""
    enabled_features: tuple[str, ...] = ()
    """The features that the architecture does not imply."""
    disabled_features: tuple[str, ...] = ()
    """Features that the architecture implies but the code must not use."""
    cores: int = 1
    triple: str | None = None
    attrs: dict[str, int] = field(default_factory=dict)
    """CUDA limits: max_threads_per_block, max_shared_memory_per_block, thread_warp_size,
    registers_per_block, l2_cache_size_bytes."""
    suffix: str = ""
    """A suffix of the label, if the job has another target of the same architecture."""

    @property
    def device(self) -> Literal["cpu", "cuda"]:
        """The device that runs the code."""
        return "cpu" if self.kind == "llvm" else "cuda"

    @property
    def label(self) -> str:
        """`cpu:znver4` or `cuda:sm_90`; `distinct` makes it unique within a job."""
        return f"{self.device}:{self.arch}{self.suffix}"

    @property
    def differences(self) -> frozenset[str]:
        """The differences from the bare architecture: `-avx2`, ` thread_warp_size=64`.

        A value begins with a space, so that it can be appended to the architecture."""
        return frozenset(
            [
                *(f"+{name}" for name in self.enabled_features),
                *(f"-{name}" for name in self.disabled_features),
                *(f" {name}={value}" for name, value in self.attrs.items()),
                *([f" {self.triple}"] if self.triple else []),
            ]
        )

    @property
    def vector_bits(self) -> int:
        """The widest vector register that the features allow."""
        if self.kind == "cuda":
            return 128
        if "avx512f" in self.features:
            return 512
        return 256 if "avx" in self.features or "avx2" in self.features else 128


_SHOWN = 2
"""A label with more differences than this gets a number instead."""


def distinct(targets: Iterable[Target]) -> tuple[Target, ...]:
    """Return the targets without repetitions, each with its own label.

    The first of an architecture keeps the plain label; a later one adds its differences from the
    first, such as `cpu:znver4-avx512f`, or its number.
    """
    found: list[Target] = []
    for target in targets:
        if target not in [replace(other, suffix="") for other in found]:
            found.append(replace(target, suffix=_suffix(target, found)))
    return tuple(found)


def _suffix(target: Target, others: list[Target]) -> str:
    alike = [o for o in others if (o.device, o.arch) == (target.device, target.arch)]
    if not alike:
        return ""
    own = sorted(target.differences - alike[0].differences)
    short = "".join(own)
    taken = [other.suffix for other in alike]
    return short if 0 < len(own) <= _SHOWN and short not in taken else f"#{len(alike) + 1}"
