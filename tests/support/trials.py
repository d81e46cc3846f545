"""Trials for the tests of the tuning database."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tvmscope.core.target import Target
from tvmscope.core.tuning import Candidate, Trial

AVX2 = Target(kind="llvm", arch="x86-64-v3", features=("avx", "avx2", "fma"), cores=2)
ZEN = Target(kind="llvm", arch="znver3", features=("avx", "avx2", "fma", "sha", "vaes"), cores=8)
AVX512 = Target(kind="llvm", arch="x86-64-v4", features=("avx", "avx2", "avx512f", "fma"))
ARM = Target(kind="llvm", arch="cortex-a72", features=("neon",), triple="aarch64-linux-gnu")
H100 = Target(kind="cuda", arch="sm_90")
CONV = "conv2d 1x64x56x56 64x64x3x3 float32"
TVM = "0.27.0.post1"


def trial(tile: int = 4, seconds: float = 1e-3, **changes: Any) -> Trial:
    """An ordinary trial of a search."""
    values: dict[str, Any] = {
        "workload": CONV,
        "candidate": Candidate(params={"tile": tile, "layout": "NCHW16c"}),
        "target": AVX2,
        "threads": 2,
        "status": "ok",
        "seconds": (seconds, seconds * 1.01, seconds * 1.02),
        "tvm": TVM,
        "cpu": "a CPU",
        "date": "2026-11-15T10:00:00Z",
    }
    return Trial(**{**values, **changes})


def validated(
    tile: int = 4, seconds: float = 1e-3, baseline: float = 2e-3, **changes: Any
) -> Trial:
    """A trial that was measured again beside the untuned kernel."""
    return trial(tile, seconds, stage="validated", baseline_s=(baseline,) * 3, **changes)


def failed(tile: int = 4, **changes: Any) -> Trial:
    """A candidate that could not be built."""
    return replace(trial(tile, **changes), status="failed", reason="no", seconds=())
