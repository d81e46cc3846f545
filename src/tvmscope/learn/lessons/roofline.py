"""The roofline: arithmetic intensity determines which limit a computation can reach."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvmscope.analysis.roofline import limits_of
from tvmscope.learn import exercises
from tvmscope.learn.facts import StepRun, Study
from tvmscope.learn.lesson import Lesson, Parameter, Params, Step, lanes
from tvmscope.learn.workloads import ADD, MATMUL, MATVEC
from tvmscope.messages import Text, msg

if TYPE_CHECKING:
    from tvm.s_tir import Schedule


def add(sch: Schedule, p: Params) -> None:
    i, _j = sch.get_loops("C")
    sch.parallel(i)


def matvec(sch: Schedule, p: Params) -> None:
    i, k = sch.get_loops("Y")
    i_o, i_i = sch.split(i, factors=[None, 4 * p["factor"]])
    sch.reorder(i_o, k, i_i)
    sch.vectorize(i_i)
    sch.parallel(i_o)


def matmul(sch: Schedule, p: Params) -> None:
    out = sch.cache_write("C", 0, "local")
    i, j, k = sch.get_loops("C")
    i_o, i_i = sch.split(i, factors=[None, 4])
    j_o, j_i = sch.split(j, factors=[None, p["factor"]])
    sch.reorder(i_o, j_o, k, i_i, j_i)
    sch.unroll(i_i)
    sch.vectorize(j_i)
    sch.reverse_compute_at(out, j_o)
    sch.parallel(i_o)
    sch.decompose_reduction("C", k)


def intensity(run: StepRun) -> float | None:
    """Return the floating-point operations for each byte that must be moved."""
    built = run.built
    if built is None or not built.flops or not built.bytes:
        return None
    return built.flops / built.bytes


def ridge(study: Study) -> float | None:
    """Return the intensity at which main memory and arithmetic take equally long."""
    rate = limits_of(study.roofs, "float32", study.threads).flops_per_s
    memory = study.bandwidth("DRAM", study.threads)
    return None if rate is None or memory is None else rate / memory


def _says(now: StepRun, before: StepRun, study: Study) -> Text | None:
    own, corner = intensity(now), ridge(study)
    if own is None or corner is None:
        return None
    if own < corner:
        return msg(
            "{own:.3g} operations for each byte, below the {corner:.2g} at which main memory and "
            "arithmetic take equally long: from main memory this cannot reach the arithmetic.",
            own=own,
            corner=corner,
        )
    return msg(
        "{own:.3g} operations for each byte, above the {corner:.2g} at which main memory and "
        "arithmetic take equally long: only the arithmetic limits it.",
        own=own,
        corner=corner,
    )


LESSON = Lesson(
    name="roofline",
    title=msg("The roofline: what could be reached at all"),
    idea=msg(
        "A machine has two limits that can be measured: how many multiply-adds it does a second, "
        "and how many bytes each level of its memory delivers. A computation has a number too: "
        "operations for each byte that it must move at the least, its arithmetic intensity. "
        "Whichever limit is nearer is its roof.\n\n"
        "Three computations, each with a schedule that suits it. The share of the roof counts, not "
        "the GFLOP/s: an addition at 3 GFLOP/s may be perfect, a matrix product at 30 poor."
    ),
    workload=ADD,
    size=768,
    smallest=64,
    parameters=(Parameter(name="factor", words=msg("numbers of one vector"), default=lanes),),
    steps=(
        Step(name="add", title=msg("C = A + B"), apply=add),
        Step(
            name="matvec",
            title=msg("A matrix times a vector"),
            workload=MATVEC,
            apply=matvec,
            says=_says,
        ),
        Step(
            name="matmul",
            title=msg("A matrix times a matrix"),
            workload=MATMUL,
            apply=matmul,
            says=_says,
        ),
    ),
    exercise=exercises.number(
        msg(
            "How many operations for each byte does C = A + B have, as one over a whole number: "
            "1 / ?"
        ),
        lambda study: 12,
        lambda study, right: msg(
            "Yes: one addition for two numbers read and one written, 4 bytes each."
        ),
    ),
    closing=msg("Next: tvmscope learn gpu"),
)
