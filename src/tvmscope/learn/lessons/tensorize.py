"""Tensorize: replace a whole part of the loops by one operation of the machine."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from tvmscope.core.target import Target
from tvmscope.learn import exercises
from tvmscope.learn.facts import Exhibit
from tvmscope.learn.lesson import Lesson, Parameter, Params, Step, lanes
from tvmscope.learn.workloads import MATMUL
from tvmscope.measure.remote import here
from tvmscope.messages import msg

if TYPE_CHECKING:
    from tvm.s_tir import Schedule

_HEAD = """@T.prim_func(s_tir=True)
def {name}(
    A: T.Buffer((1,), "float32", offset_factor=1),
    B: T.Buffer(({width},), "float32", offset_factor=1),
    C: T.Buffer(({width},), "float32", offset_factor=1, scope="local"),
) -> None:
    with T.sblock("root"):
        T.reads(C[0:{width}], A[0:1], B[0:{width}])
        T.writes(C[0:{width}])
"""
MEANING = (
    _HEAD
    + """        for j in T.serial({width}):
            with T.sblock("row"):
                v = T.axis.spatial({width}, j)
                C[v] = C[v] + A[0] * B[v]
"""
)
CODE = (
    _HEAD
    + """        C[T.ramp(0, 1, {width})] = T.call_llvm_pure_intrin(
            T.llvm_lookup_intrinsic_id("llvm.fma"),
            T.broadcast(A[0], {width}),
            B[T.ramp(0, 1, {width})],
            C[T.ramp(0, 1, {width})],
            dtype="float32x{width}",
        )
"""
)


def programs(width: int) -> tuple[str, str]:
    """Return the operation's meaning, and its implementation: both in TVMScript."""
    meaning = MEANING.format(name="meaning", width=width)
    return meaning, CODE.format(name="code", width=width)


@cache
def multiply_add(width: int) -> str:
    """Register the operation with TVM, once; return its name."""
    from tvm.s_tir import TensorIntrin
    from tvm.script import from_source, tirx

    name = f"tvmscope.learn.multiply_add_{width}"
    meaning, code = (from_source(text, {"T": tirx}) for text in programs(width))
    TensorIntrin.register(name, meaning, code)
    return name


def tile(sch: Schedule, p: Params) -> None:
    out = sch.cache_write("C", 0, "local")
    i, j, k = sch.get_loops("C")
    i_o, i_i = sch.split(i, factors=[None, p["rows"]])
    j_o, j_i = sch.split(j, factors=[None, p["width"]])
    sch.reorder(i_o, j_o, k, i_i, j_i)
    sch.unroll(i_i)
    sch.reverse_compute_at(out, j_o)
    sch.decompose_reduction("C", k)


def replace(sch: Schedule, p: Params) -> None:
    *_, j_i = sch.get_loops("C_update")
    sch.tensorize(j_i, multiply_add(p["width"]))


def mismatch(sch: Schedule, p: Params) -> None:
    *_, j_i = sch.get_loops("C_update")
    sch.tensorize(j_i, multiply_add(2 * p["width"]))


def exhibits(size: int, target: Target, live: bool) -> tuple[Exhibit, ...]:
    """Show the two halves of an intrinsic."""
    meaning, code = programs(lanes(target))
    return (
        Exhibit(
            title=msg("What it means"),
            words=msg("TVM looks for loops that do exactly this; otherwise it refuses."),
            code=meaning,
            language="python",
        ),
        Exhibit(
            title=msg("How it is done"),
            words=msg(
                "This takes their place. Here it is LLVM's multiply-add of one vector; it could be "
                "a dot product of bytes (VNNI), a matrix tile (AMX, a GPU's tensor cores), or a "
                "call of your own C function."
            ),
            code=code,
            language="python",
        ),
    )


LESSON = Lesson(
    name="tensorize",
    title=msg("tensorize: one operation for a part of the loops"),
    idea=msg(
        "Some machines have instructions that do the work of a whole loop nest: a dot product of "
        "bytes, a product of small matrices. No compiler finds all of them by itself. tensorize "
        "takes a pair, what the operation means and how it is done, checks that the loops mean "
        "the same, and puts the operation in their place.\n\n"
        "The plain multiply-add below LLVM can find by itself. Whether it does, and with loads as "
        "good, shows in the time and in the two machine loops (--asm)."
    ),
    workload=MATMUL,
    size=384,
    smallest=64,
    parameters=(
        Parameter(name="rows", words=msg("rows of a tile"), default=4),
        Parameter(name="width", words=msg("numbers of the operation"), default=lanes),
    ),
    exhibits=here(exhibits),
    steps=(
        Step(name="tile", title=msg("A tile in registers, as loops"), apply=tile),
        Step(
            name="mismatch",
            title=msg("What is refused: an operation that is twice as wide"),
            apply=mismatch,
            refused=True,
        ),
        Step(name="replace", title=msg("Its innermost loop as one operation"), apply=replace),
    ),
    exercise=exercises.number(
        msg("How many of these operations does the whole matrix product take at this size?"),
        lambda study: study.size**3 // study.params["width"],
        lambda study, right: msg(
            "Yes: {size}^3 multiply-adds, {width} in each operation.",
            size=study.size,
            width=study.params["width"],
        ),
    ),
    closing=msg("Next: tvmscope learn conflicts"),
)
