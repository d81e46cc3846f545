"""Profiles and loop nests with fixed numbers, in the shape in which a real run records them."""

from __future__ import annotations

from typing import Any

from support import samples
from support.rows import key
from tvmscope.core.profile import Buffer, KernelIR, KernelTime, Loop, Profile, Roof
from tvmscope.core.row import RowKey
from tvmscope.core.session import Session

ROOFS = (
    Roof(dtype="float32", threads=2, flops_per_s=200e9, bytes_per_s=None, how="multiply-adds"),
    *(
        Roof(
            dtype="float32", threads=2, flops_per_s=None, bytes_per_s=rate, how=f"{level}: reading",
            level=level, size_bytes=size,
        )
        for level, rate, size in (
            ("L1", 400e9, 32 << 10), ("L2", 300e9, 512 << 10), ("L3", 160e9, 8 << 20),
            ("DRAM", 40e9, 512 << 20),
        )
    ),
)  # fmt: skip


def kernel(name: str, total_s: float, *ops: str, **more: Any) -> KernelTime:
    return KernelTime(
        **{"name": name, "source_ops": ops, "calls": 1, "total_s": total_s, **more}
    )  # fmt: skip


def profile(
    backend: str | RowKey, *kernels: KernelTime, target: str = "cpu:znver4", **more: Any
) -> Profile:
    """A run that is its kernels, a host part of 2 % and an instrument that costs 1 %."""
    spent = sum(k.total_s for k in kernels)
    row = key(backend, target) if isinstance(backend, str) else backend
    return Profile(
        **{
            "key": row, "kernels": kernels, "how": "by hand",
            "runs": 9, "end_to_end_s": spent * 1.02, "profiled_s": spent * 1.03,
            "host_s": spent * 0.03, **more,
        }
    )  # fmt: skip


def nest(name: str, *modes: tuple[str, int], **more: Any) -> KernelIR:
    """A kernel whose loops lie inside one another, outermost first, around one statement."""
    body = (Loop(text="out = out + a * b"),)
    for index, (mode, extent) in reversed(list(enumerate(modes))):
        body = (Loop(text=f"i{index}", extent=extent, mode=mode, body=body),)
    return KernelIR(
        **{
            "name": name, "tree": body, "rule": "matmul",
            "buffers": (Buffer(name="a", shape=(64, 64), dtype="float32", scope="global"),), **more,
        }
    )  # fmt: skip


def session(*profiles: Profile, **more: Any) -> Session:
    """A session with these profiles, a row for each, and the roofs above."""
    rows = [samples.result(p.key, p.end_to_end_s) for p in profiles]
    rows += more.pop("rows", [])
    return samples.session(*rows, **{"profiles": profiles, "roofs": ROOFS, **more})
