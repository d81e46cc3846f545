"""The machine that code is compiled for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Target:
    """A compilation target, free of TVM. `features` are LLVM names ("avx2", "fma") without sign."""

    kind: Literal["llvm", "cuda"]
    arch: str
    features: tuple[str, ...] = ()
    """What the code may use, everything counted."""
    enabled_features: tuple[str, ...] = ()
    """Those of `features` that the arch by itself does not have."""
    disabled_features: tuple[str, ...] = ()
    """What the arch by itself has and the code must not use."""
    cores: int = 1
    triple: str | None = None
    attrs: dict[str, int] = field(default_factory=dict)
    """CUDA limits: max_threads_per_block, max_shared_memory_per_block, thread_warp_size,
    registers_per_block, l2_cache_size_bytes."""

    @property
    def device(self) -> Literal["cpu", "cuda"]:
        """Where it runs."""
        return "cpu" if self.kind == "llvm" else "cuda"

    @property
    def label(self) -> str:
        """`cpu:znver4` or `cuda:sm_90`."""
        return f"{self.device}:{self.arch}"

    @property
    def vector_bits(self) -> int:
        """The widest vector register that the features allow."""
        if self.kind == "cuda":
            return 128
        if "avx512f" in self.features:
            return 512
        return 256 if "avx" in self.features or "avx2" in self.features else 128
