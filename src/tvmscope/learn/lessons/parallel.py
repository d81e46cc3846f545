"""Parallel: the iterations of a loop on several cores, and the cost of a thread."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from tvmscope.core.target import Target
from tvmscope.learn import exercises
from tvmscope.learn.facts import Exhibit
from tvmscope.learn.lesson import Lesson, Parameter, Params, Step, lanes
from tvmscope.learn.workloads import MATMUL
from tvmscope.measure.remote import here
from tvmscope.measure.worker import run_isolated
from tvmscope.messages import msg, msgn

if TYPE_CHECKING:
    from tvm.s_tir import Schedule


def serial(sch: Schedule, p: Params) -> None:
    i, j, k = sch.get_loops("C")
    j_o, j_i = sch.split(j, factors=[None, p["factor"]])
    sch.reorder(i, j_o, k, j_i)
    sch.vectorize(j_i)


def rows(sch: Schedule, p: Params) -> None:
    i, *_ = sch.get_loops("C")
    sch.parallel(i)


def inner(sch: Schedule, p: Params) -> None:
    i, j, k = sch.get_loops("C")
    j_o, j_i = sch.split(j, factors=[None, p["factor"]])
    sch.reorder(i, j_o, k, j_i)
    sch.vectorize(j_i)
    sch.parallel(j_o)


def default_threads() -> int:
    """Return the default size of TVM's pool; called in a process without any setting of it."""
    import os

    os.environ.pop("TVM_NUM_THREADS", None)
    from tvmscope.runtime import tvm_compat

    tvm = tvm_compat.import_tvm(torch=False)
    return int(tvm.get_global_func("runtime.NumThreads")())


@cache
def tvms_own_choice() -> int:
    """Return the same, determined in a separate process."""
    return run_isolated(here(default_threads))


def exhibits(size: int, target: Target, live: bool) -> tuple[Exhibit, ...]:
    """Show how many threads TVM uses, and how many cores there are."""
    own = tvms_own_choice()
    return (
        Exhibit(
            title=msg("TVM's own choice"),
            words=msg(
                "This process may use {cores} cores. Left alone, TVM's pool has {own}: "
                "on x86 it takes half of the processors it sees, because two of them are often one "
                "core's hyper-threads, which share the vector units. Where they are cores of their "
                "own, as in many virtual machines, half of the machine stands still. "
                "TVM_NUM_THREADS says otherwise; it must be set before the pool starts.",
                cores=target.cores,
                own=msgn("{count} thread", "{count} threads", count=own),
            ),
        ),
    )


def _all_cores(target: Target) -> int:
    return target.cores


LESSON = Lesson(
    name="parallel",
    title=msg("parallel: turns for several cores"),
    idea=msg(
        "parallel(i) hands the turns of a loop to TVM's threads, in equal parts. The turns must "
        "not depend on each other; a sum cannot be handed out, its rows can.\n\n"
        "Handing out costs some microseconds each time. So the outermost loop is the one to hand "
        "out: once, in large parts."
    ),
    workload=MATMUL,
    size=384,
    smallest=32,
    parameters=(Parameter(name="factor", words=msg("numbers of one vector"), default=lanes),),
    exhibits=here(exhibits),
    steps=(
        Step(name="serial", title=msg("Vectorised, on one core"), apply=serial),
        Step(
            name="one-thread",
            title=msg("parallel over rows, with one thread"),
            apply=rows,
            params={"threads": 1},
        ),
        Step(
            name="all-threads",
            title=msg("The same with a thread for each core"),
            params={"threads": _all_cores},
        ),
        Step(
            name="inner",
            title=msg("parallel over blocks of columns, inside the rows"),
            note=msg("Now work is handed out once for each row."),
            apply=inner,
            anew=True,
        ),
    ),
    exercise=exercises.number(
        msg("How many threads does TVM's pool have on this machine if nobody says anything?"),
        lambda study: tvms_own_choice(),
        lambda study, right: msg(
            "Yes: {right}, of {cores} usable cores.", right=right, cores=study.target.cores
        ),
    ),
    closing=msg("Next: tvmscope learn unroll"),
)
