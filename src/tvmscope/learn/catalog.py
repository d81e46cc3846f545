"""The lessons in the order in which they build on each other."""

from __future__ import annotations

from difflib import get_close_matches
from functools import cache

from tvmscope import plugins
from tvmscope.errors import UsageError
from tvmscope.learn.lesson import Lesson
from tvmscope.messages import Message, msg

CHAPTERS: tuple[tuple[Message, tuple[str, ...]], ...] = (
    (msg("First"), ("road", "schedule")),
    (msg("Loops"), ("split", "reorder", "fuse", "tile", "vectorize", "parallel", "unroll")),
    (msg("Data"), ("cache", "compute-at", "layout", "reduction", "tensorize")),
    (msg("Machines"), ("conflicts", "roofline", "gpu")),
    (msg("Tools"), ("search", "winograd", "profile")),
    (msg("Everything together"), ("matmul", "conv2d")),
)
"""The order matters: a lesson may use the ideas of the lessons before it."""


@cache
def lessons() -> dict[str, Lesson]:
    """Return every lesson by name, in order."""
    found, failures = plugins.discover("tvmscope.learn.lessons", "LESSON")
    plugins.remember(failures)
    known = {lesson.name: lesson for lesson in found.values()}
    order = [name for _, names in CHAPTERS for name in names]
    return {name: known[name] for name in (*order, *sorted(known)) if name in known}


def find(name: str) -> Lesson:
    """Return a lesson by its name; the error for an unknown name suggests the nearest one."""
    known = lessons()
    if name in known:
        return known[name]
    near = get_close_matches(name, known, 1)
    hint = msg("did you mean {name}?", name=near[0]) if near else msg("tvmscope learn lists them")
    raise UsageError(msg("there is no lesson named '{name}'; {hint}", name=name, hint=hint))
