"""For every rule a session in which it should fire first, and one that only looks like it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from support import samples
from support.profiles import ROOFS, kernel, nest, profile, session
from support.rows import key
from tvmscope.core.measurement import Measurement
from tvmscope.core.profile import Buffer, Edges, KernelIR, KernelTime, Roof
from tvmscope.core.session import Session
from tvmscope.stages.facts import informed

GOOD = (("parallel", 56), ("serial", 64), ("unrolled", 6), ("vectorized", 16))
"""Loops of a kernel that is well scheduled."""
FAST = {"flops": 1.4e9, "bytes": 2e6}
"""Counts with which ten milliseconds are 70 % of the compute roof."""
SLOW = {"flops": 1.4e8, "bytes": 2e6}


def good(name: str = "fused_conv2d_add_relu", total_s: float = 0.01, **more: Any) -> KernelTime:
    return kernel(name, total_s, "conv1", **{**FAST, **more})


def with_loops(*loops: tuple[str, int], counts: dict[str, float] = SLOW, **more: Any) -> Session:
    """One kernel beside a good one, with these loops."""
    odd = kernel("fused_dense_add", 0.01, "fc", **counts)
    irs = (nest("fused_conv2d_add_relu", *GOOD), nest("fused_dense_add", *loops, **more))
    return session(profile("tvmscope", good(), odd), kernel_ir=irs)


def beside(*kernels: KernelTime, irs: tuple[KernelIR, ...] = (), **more: Any) -> Session:
    """Kernels after a good one of ten milliseconds; those without loops of their own are good."""
    given = {ir.name for ir in irs}
    names = ["fused_conv2d_add_relu", *(k.name for k in kernels)]
    loops = (*irs, *(nest(n, *GOOD) for n in dict.fromkeys(names) if n not in given))
    return session(profile("tvmscope", good(), *kernels), **{"kernel_ir": loops, **more})


def on_gpu(*kernels: KernelTime, irs: tuple[KernelIR, ...], **more: Any) -> Session:
    roofs = (
        Roof(dtype="float32", threads=0, flops_per_s=50e12, bytes_per_s=None, how="fma",
             device="cuda"),
        Roof(dtype="float32", threads=0, flops_per_s=None, bytes_per_s=4e12, how="copy",
             device="cuda", level="DRAM", size_bytes=1 << 30),
    )  # fmt: skip
    found = profile("tvmscope", *kernels, target="cuda:sm_90", **more)
    return session(found, targets=(samples.CUDA,), roofs=roofs, kernel_ir=irs)


def gpu_nest(name: str, *buffers: Buffer, blocks: int = 512, **more: Any) -> KernelIR:
    modes = (("blockIdx.x", blocks), ("threadIdx.x", 128), ("serial", 64))
    return nest(name, *modes, **{"buffers": buffers, "rule": "dlight-matmul", **more})


def buffer(shape: tuple[int, ...], dtype: str = "float16", scope: str = "global") -> Buffer:
    return Buffer(name="a", shape=shape, dtype=dtype, scope=scope)


def unscheduled(rule: str | None = None, pipeline: str = "tvm") -> Session:
    """What TVM as it comes makes of a CPU model."""
    row = key("tvm", pipeline=pipeline)
    kernels = (kernel("conv2d", 4.9, "conv1", flops=2e9, bytes=4e6),)
    irs = (nest("conv2d", *(("serial", 64),) * 5, rule=rule),)
    found = replace(profile(row, *kernels), end_to_end_s=5.0)
    return samples.session(samples.result(row, 5.0), profiles=(found,), kernel_ir=irs, roofs=ROOFS)


def narrow(*features: str) -> Session:
    """Built for a plain x86-64 on a CPU with AVX2."""
    target = replace(samples.CPU, arch="x86-64", features=features)
    found = profile("tvmscope", good(flops=5e8), target="cpu:x86-64")
    irs = (nest("fused_conv2d_add_relu", *GOOD, rule="conv2d"),)
    return session(found, targets=(target,), kernel_ir=irs)


def against_peer(peer_s: float, *loops: tuple[str, int], **counts: float) -> Session:
    """A kernel of ten milliseconds, and what another backend takes for its operator."""
    irs = (nest("fused_conv2d_add_relu", *(loops or GOOD), rule="conv2d"),)
    peer = profile("onnxruntime", kernel("Conv", peer_s, "conv1"))
    return session(profile("tvmscope", good(**counts)), peer, kernel_ir=irs)


def measured(rounds: list[float], spread: float = 0.0, other: float = 0.05) -> Session:
    """A row whose rounds have these medians, beside a calm one."""
    steps = [spread * s for s in (-1, -0.5, 0, 0.5, 1)]
    values = Measurement(rounds_s=tuple(tuple(r * (1 + s) for s in steps) for r in rounds))
    return samples.session(
        replace(samples.result("tvmscope", 0.05), measurement=values),
        samples.result("onnxruntime", other),
    )


def tuned(tuned_s: float) -> Session:
    plain = samples.result("tvmscope", 0.05)
    row = samples.result(key("tvmscope-tuned", tuning="records"), tuned_s)
    profiles = (
        profile("tvmscope", good(), kernel("fused_dense", 0.01, **FAST)),
        profile(row.key, good(), kernel("fused_dense", 0.02, **FAST)),
    )
    return samples.session(plain, row, profiles=profiles)


def launches(calls: int, host_s: float, target: str = "cpu:znver4") -> Session:
    small = kernel("fused_add", 2e-3, "add", calls=calls)
    found = replace(
        profile("tvmscope", small, target=target),
        host_s=host_s, end_to_end_s=2e-3 + host_s, profiled_s=2e-3 + host_s,
    )  # fmt: skip
    targets = (samples.CPU if target.startswith("cpu") else samples.CUDA,)
    return session(found, targets=targets, roofs=())


def moving(*where: Edges | None) -> Session:
    """A convolution on a GPU and a launch that only moves data at each of these places."""
    moves = (
        kernel(f"transpose{i}", 5e-6, "conv1", kind="layout", edges=at)
        for i, at in enumerate(where)
    )
    return on_gpu(kernel("conv", 1e-3, "conv1", flops=3e10, bytes=1e6), *moves, irs=())


def built(found: Session, threads: int = 2, **settings: str) -> Session:
    """A session whose rows say how they were built and run."""
    rows = tuple(
        replace(r, settings=settings, task=replace(r.task, threads=threads)) for r in found.results
    )
    return informed(replace(found, results=rows))


def direct(rows: int) -> Session:
    """A 3x3 convolution from 56 rows to `rows` in channel blocks, at 70 % of the roof."""
    shapes = ((4, 4, 3, 3, 16, 16), (1, 4, 56, 56, 16), (1, 4, rows, rows, 16))
    buffers = tuple(buffer(shape, "float32") for shape in shapes)
    irs = (nest("fused_conv2d_add_relu", *GOOD, rule="conv2d", buffers=buffers),)
    return session(profile("tvmscope", good()), kernel_ir=irs)


WILD = [0.05 * f for f in (1, 1.3, 0.9, 1.25, 0.95, 1.2, 0.85, 1.3, 1)]
HALF = (buffer((512, 512)), buffer((512, 512)))
MATMUL = kernel("fused_matmul_add", 1e-3, "fc", flops=1e9, bytes=1e6)

SITUATIONS: dict[str, tuple[Session, Session]] = {
    "no-schedule": (unscheduled(), unscheduled(rule="matmul")),
    "serial-kernel": (
        with_loops(("serial", 64), ("vectorized", 16)),
        with_loops(("parallel", 2), ("serial", 32), ("vectorized", 16)),
    ),
    "not-vectorized": (
        with_loops(("parallel", 64), ("serial", 16), counts={"flops": 1e8, "bytes": 2e6}),
        with_loops(("parallel", 64), ("serial", 16), counts={"flops": 9e8, "bytes": 2e6}),
    ),
    "target-feature-unused": (narrow("sse2"), narrow("sse2", "avx", "avx2", "fma")),
    "tensor-cores-unused": (
        on_gpu(MATMUL, irs=(gpu_nest("fused_matmul_add", buffer((512, 512), "float32")),)),
        on_gpu(
            MATMUL,
            irs=(gpu_nest("fused_matmul_add", *HALF, buffer((16, 16), scope="wmma.matrix_a")),),
        ),
    ),
    "hot-operator": (
        beside(kernel("scatter_nd", 8e-3, "index_put", calls=32, bytes=2e6)),
        beside(kernel("scatter_nd", 0.1e-3, "index_put", calls=32, bytes=2e6)),
    ),
    "layout-changes": (
        beside(
            *(kernel(f"layout_transform{i}", 2e-4, "conv", kind="layout") for i in range(3)),
            kernel("contrib_nchwc_to_nchw", 5e-4, "conv", kind="layout"),
        ),
        beside(kernel("layout_transform", 2e-4, "conv", kind="layout")),
    ),
    "moving-launches": (
        moving(Edges(inputs=(0,)), Edges(), Edges(outputs=(0,))),
        moving(Edges(inputs=(0,)), Edges(inputs=(1,)), Edges(outputs=(0,))),
    ),
    "unfused-chain": (
        beside(*(kernel(n, 1e-3, n) for n in ("multiply", "add", "tanh", "relu"))),
        beside(kernel("fused_multiply_add_tanh_relu", 1e-3, "a", "b")),
    ),
    "launch-bound": (launches(200, 1e-3), launches(200, 1e-4)),
    "at-memory-roof": (
        beside(kernel("fused_dense", 0.01, "fc", flops=1.9e8, bytes=380e6)),
        beside(kernel("fused_dense", 0.01, "fc", flops=1.9e9, bytes=100e6)),
    ),
    "untuned-kernel": (
        with_loops(*GOOD, counts={"flops": 5e8, "bytes": 2e6}),
        with_loops(*GOOD, counts={"flops": 1.3e9, "bytes": 2e6}),
    ),
    "cores-unused": (built(beside(), threads=1), built(beside(), threads=2)),
    "pass-disabled": (
        built(
            with_loops(("parallel", 56), ("serial", 64), rule="fallback"),
            disabled_passes="pack-matmul",
        ),
        with_loops(("parallel", 56), ("serial", 64), ("vectorized", 16), rule="matmul"),
    ),
    "winograd-off": (built(direct(56), winograd="False"), built(direct(28), winograd="False")),
    "tuned-slower": (tuned(0.06), tuned(0.045)),
    "casts": (
        beside(*(kernel(f"cast{i}", 5e-4, "to", kind="layout") for i in range(6))),
        beside(kernel("cast", 5e-4, "to", kind="layout")),
    ),
    "fallback-operator": (
        with_loops(("parallel", 56), ("serial", 64), ("vectorized", 16), rule="fallback"),
        with_loops(
            ("parallel", 56), ("vectorized", 16), rule="fallback",
            counts={"flops": 1e7, "bytes": 1e7},
        ),
    ),
    "slower-than-peer": (against_peer(0.004), against_peer(0.009)),
    "runs-in-framework": (
        beside(kernel("tvmscope.fallback.region_1", 0.2, "gelu/Gelu")),
        beside(kernel("fused_gelu", 1e-4, "gelu/Gelu")),
    ),
    "warm-up-drift": (
        measured([0.060, 0.059, 0.058, 0.056, 0.055, 0.054, 0.052, 0.051, 0.050]),
        measured([0.050, 0.051] * 5),
    ),
    "too-noisy": (measured(WILD, spread=0.3), measured(WILD, spread=0.3, other=0.5)),
}  # fmt: skip
"""Rule -> (the session in which it fires first, the near-miss)."""
