"""Tensor intrinsics for 16x16 tiles in registers: load, multiply with m16n8k16, clear, store.

TVM has such intrinsics on memory that a warp shares, which TVM 0.27 lowers in the first of a
kernel's buffers alone. Here every thread has an array of its own: a tile is [32, 8] for the
schedule, and a thread uses the first eight elements, wherever the other threads' would be. The
compiler keeps those in registers and drops the rest.
"""

from __future__ import annotations

from functools import cache
from typing import Any

EDGE = 16
WARP = 32
OWN = EDGE * EDGE // WARP
_SHORT = {"float16": "fp16", "bfloat16": "bf16"}
LOADED, STORED = "shared.dyn", ("shared.dyn", "global")


def layout(row: Any, column: Any) -> tuple[Any, Any]:
    """Return the thread that holds an element of a tile, and its place there."""
    return 4 * (row % 8) + column % 8 // 2, column // 8 * 4 + row // 8 * 2 + column % 2


def name(part: str, dtype: str, form: str = "") -> str:
    """Return the name of an intrinsic; they are registered on the first call."""
    register()
    return "_".join(p for p in ("tvmscope", part, dtype, form.replace(".", "_")) if p)


@cache
def register() -> None:
    """Register all of them with TVM, in this process."""
    from tvmscope.runtime import tvm_compat

    with tvm_compat.light_inspect():
        _register()


def _register() -> None:
    from tvm.s_tir import TensorIntrin

    def add(part: str, dtype: str, form: str, both: tuple[Any, Any]) -> None:
        known = "_".join(p for p in ("tvmscope", part, dtype, form.replace(".", "_")) if p)
        TensorIntrin.register(known, *both, override=True)

    add("clear", "float32", "", _clear())
    for scope in STORED:
        add("store", "float32", scope, _store(scope))
    for dtype in _SHORT:
        add("left", dtype, "", _load(dtype, crossed=False, across=False))
        add("right", dtype, "by_sum", _load(dtype, crossed=True, across=False))
        add("right", dtype, "by_column", _load(dtype, crossed=False, across=True))
        add("multiply", dtype, "by_sum", _multiply(dtype, by_sum=True))
        add("multiply", dtype, "by_column", _multiply(dtype, by_sum=False))


def _load(dtype: str, *, crossed: bool, across: bool) -> tuple[Any, Any]:
    """Four 8x8 matrices from shared memory: `crossed` in the order of an operand whose rows are
    columns of the product, `across` transposed on the way."""
    from tvm.script import tirx as T

    @T.prim_func(s_tir=True, check_well_formed=False)
    def described(to: T.handle, source: T.handle) -> None:
        shared = T.match_buffer(
            source, (16, 16), dtype, align=64, offset_factor=16, scope="shared.dyn"
        )
        own = T.match_buffer(to, (32, 8), dtype, align=64, offset_factor=16, scope="local")
        with T.sblock("root"):
            T.reads(shared[0:16, 0:16])
            T.writes(own[0:32, 0:8])
            for i, j in T.grid(16, 16):
                with T.sblock("load"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    T.reads(shared[vi, vj])
                    thread, place = T.meta_var(layout(vi, vj))
                    T.writes(own[thread, place])
                    own[thread, place] = shared[vi, vj]

    def address(lane: Any, stride: Any) -> Any:
        if crossed:
            return stride * (8 * (lane // 16) + lane % 8) + 8 * (lane % 16 // 8)
        return stride * (lane % 16) + 8 * (lane // 16)

    @T.prim_func(s_tir=True, check_well_formed=False)
    def done(to: T.handle, source: T.handle) -> None:
        s0 = T.int32()
        s1 = T.int32()
        shared = T.match_buffer(
            source,
            (16, 16),
            dtype,
            align=64,
            offset_factor=16,
            scope="shared.dyn",
            strides=[s0, s1],
        )
        own = T.match_buffer(to, (32, 8), dtype, align=64, offset_factor=16, scope="local")
        with T.sblock("root"):
            T.reads(shared[0:16, 0:16])
            T.writes(own[0:32, 0:8])
            for lane in T.thread_binding(0, 32, "threadIdx.x"):
                T.evaluate(
                    T.ptx_legacy.ldmatrix(
                        across,
                        4,
                        ".b16",
                        own.data,
                        own.elem_offset,
                        shared.access_ptr("r"),
                        address(lane, s0),
                        dtype=dtype,
                    )
                )

    return described, done


def _multiply(dtype: str, *, by_sum: bool) -> tuple[Any, Any]:
    from tvm.script import tirx as T

    short = _SHORT[dtype]

    @T.prim_func(s_tir=True, check_well_formed=False)
    def described(a: T.handle, b: T.handle, c: T.handle) -> None:
        left = T.match_buffer(a, (32, 8), dtype, align=64, offset_factor=16, scope="local")
        right = T.match_buffer(b, (32, 8), dtype, align=64, offset_factor=16, scope="local")
        total = T.match_buffer(c, (32, 8), "float32", align=64, offset_factor=16, scope="local")
        with T.sblock("root"):
            T.reads(total[0:32, 0:8], left[0:32, 0:8], right[0:32, 0:8])
            T.writes(total[0:32, 0:8])
            for i, j, k in T.grid(16, 16, 16):
                with T.sblock("multiply"):
                    vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                    tc, pc = T.meta_var(layout(vi, vj))
                    ta, pa = T.meta_var(layout(vi, vk))
                    tb, pb = T.meta_var(layout(vj, vk) if by_sum else layout(vk, vj))
                    T.reads(total[tc, pc], left[ta, pa], right[tb, pb])
                    T.writes(total[tc, pc])
                    total[tc, pc] += T.Cast("float32", left[ta, pa]) * T.Cast(
                        "float32", right[tb, pb]
                    )

    @T.prim_func(s_tir=True, check_well_formed=False)
    def done(a: T.handle, b: T.handle, c: T.handle) -> None:
        left = T.match_buffer(a, (32, 8), dtype, align=64, offset_factor=16, scope="local")
        right = T.match_buffer(b, (32, 8), dtype, align=64, offset_factor=16, scope="local")
        total = T.match_buffer(c, (32, 8), "float32", align=64, offset_factor=16, scope="local")
        with T.sblock("root"):
            T.reads(total[0:32, 0:8], left[0:32, 0:8], right[0:32, 0:8])
            T.writes(total[0:32, 0:8])
            for _lane in T.thread_binding(0, 32, "threadIdx.x"):
                for half in T.unroll(2):
                    T.evaluate(
                        T.ptx_legacy.mma(
                            "m16n8k16",
                            "row",
                            "col",
                            short,
                            short,
                            "fp32",
                            left.data,
                            left.elem_offset,
                            right.data,
                            right.elem_offset + half * 4,
                            total.data,
                            total.elem_offset + half * 4,
                            False,
                            dtype="float32",
                        )
                    )

    return described, done


def _clear() -> tuple[Any, Any]:
    from tvm.script import tirx as T

    @T.prim_func(s_tir=True, check_well_formed=False)
    def described(c: T.handle) -> None:
        total = T.match_buffer(c, (32, 8), "float32", align=64, offset_factor=16, scope="local")
        with T.sblock("root"):
            T.reads()
            T.writes(total[0:32, 0:8])
            for i, j in T.grid(16, 16):
                with T.sblock("clear"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    thread, place = T.meta_var(layout(vi, vj))
                    T.reads()
                    T.writes(total[thread, place])
                    total[thread, place] = T.float32(0)

    @T.prim_func(s_tir=True, check_well_formed=False)
    def done(c: T.handle) -> None:
        total = T.match_buffer(c, (32, 8), "float32", align=64, offset_factor=16, scope="local")
        with T.sblock("root"):
            T.reads()
            T.writes(total[0:32, 0:8])
            for _lane in T.thread_binding(0, 32, "threadIdx.x"):
                for i in T.unroll(8):
                    total[0, i] = T.float32(0)

    return described, done


def _store(scope: str) -> tuple[Any, Any]:
    """Two neighbours at a time."""
    from tvm.script import tirx as T

    @T.prim_func(s_tir=True, check_well_formed=False)
    def described(c: T.handle, to: T.handle) -> None:
        total = T.match_buffer(c, (32, 8), "float32", align=64, offset_factor=16, scope="local")
        out = T.match_buffer(to, (16, 16), "float32", align=64, offset_factor=16, scope=scope)
        with T.sblock("root"):
            T.reads(total[0:32, 0:8])
            T.writes(out[0:16, 0:16])
            for i, j in T.grid(16, 16):
                with T.sblock("store"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    thread, place = T.meta_var(layout(vi, vj))
                    T.reads(total[thread, place])
                    T.writes(out[vi, vj])
                    out[vi, vj] = total[thread, place]

    @T.prim_func(s_tir=True, check_well_formed=False)
    def done(c: T.handle, to: T.handle) -> None:
        s0 = T.int32()
        s1 = T.int32()
        total = T.match_buffer(c, (32, 8), "float32", align=64, offset_factor=16, scope="local")
        out = T.match_buffer(
            to, (16, 16), "float32", align=64, offset_factor=16, scope=scope, strides=[s0, s1]
        )
        with T.sblock("root"):
            T.reads(total[0:32, 0:8])
            T.writes(out[0:16, 0:16])
            for lane in T.thread_binding(0, 32, "threadIdx.x"):
                for i in T.unroll(4):
                    for j in T.vectorized(2):
                        out[lane // 4 + i % 2 * 8, lane % 4 * 2 + i // 2 * 8 + j] = total[
                            0, i * 2 + j
                        ]

    return described, done
