"""Conflicts: rows whose length is a power of two share a few sets of the cache."""

from __future__ import annotations

from tvmscope.learn import exercises
from tvmscope.learn.lesson import Lesson, Parameter, Step
from tvmscope.learn.lessons.tile import tiled
from tvmscope.learn.workloads import PADDED_TRANSPOSE, TRANSPOSE
from tvmscope.messages import msg

LESSON = Lesson(
    name="conflicts",
    title=msg("Cache sets: why powers of two are slow"),
    idea=msg(
        "A cache is a table. A line may stand only in the row of the table (the set) that some "
        "bits of its address name, and a set has few places: 8 or so. Addresses that lie a power "
        "of two apart have the same bits, so that a whole column of a 1024 x 1024 matrix fights "
        "for a handful of sets while the rest of the cache is empty. The memory of a GPU's threads "
        "has the same trouble with its banks.\n\n"
        "Two cures: rows that are a little longer than they need be, or a tile that needs few "
        "lines at a time."
    ),
    workload=TRANSPOSE,
    size=1024,
    smallest=64,
    parameters=(Parameter(name="tile", words=msg("rows and columns of a tile"), default=8),),
    steps=(
        Step(name="power-of-two", title=msg("Rows of exactly this many numbers")),
        Step(
            name="padded",
            title=msg("The same matrix in rows that are 16 numbers longer"),
            note=msg("No primitive: only the place of the data differs."),
            workload=PADDED_TRANSPOSE,
        ),
        Step(
            name="tiled",
            against="power-of-two",
            title=msg("Rows of a power of two again, in tiles"),
            workload=TRANSPOSE,
            apply=tiled,
        ),
    ),
    exercise=exercises.number(
        msg(
            "How many different sets of this machine's first-level cache does a column of the "
            "matrix fall into, with rows of exactly this size?"
        ),
        lambda study: study.caches[0].sets_used(study.size * 4),
        lambda study, right: msg(
            "Yes: {sets} sets of {ways} places hold {lines} lines of a column with {size}.",
            sets=right,
            ways=study.caches[0].places,
            lines=right * study.caches[0].places,
            size=study.size,
        ),
    ),
    closing=msg("Next: tvmscope learn roofline"),
)
