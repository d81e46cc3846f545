"""Writes a lesson as a Jupyter notebook: each step is a cell that compiles, checks and measures.

The cells contain the primitives themselves, so that the reader can change them and run again. The
file is JSON in nbformat 4.5, and has no results until it is run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from textwrap import indent
from typing import Any

from tvmscope.learn.lesson import Lesson, Step
from tvmscope.messages import _, language, render

Cell = dict[str, Any]


def to_notebook(lesson: Lesson, size: int | None = None) -> str:
    """Return the notebook's file, with texts in the reader's language."""
    cells = [cell | {"id": f"cell-{n}"} for n, cell in enumerate(_cells(lesson, size), start=1)]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    data = {
        "cells": cells,
        "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(data, indent=1, ensure_ascii=False) + "\n"


def _cells(lesson: Lesson, size: int | None) -> Iterator[Cell]:
    yield _words(f"# {render(lesson.title)}", render(lesson.idea))
    more = "" if size is None else f", size={size}"
    spoken = language()
    chosen = "" if spoken == "en" else f", language={spoken!r}"
    yield _code(
        "from tvmscope.learn.pages.notebook_bench import NotebookBench\n\n"
        f"bench = NotebookBench({lesson.name!r}{more}{chosen})"
    )
    if lesson.exhibits is not None:
        yield _code("bench.exhibits()")
    for number, step in enumerate(lesson.steps, start=1):
        note = [render(step.note)] if step.note is not None else []
        yield _words(f"## {number}. {render(step.title)}", *note)
        yield _code(_step(step))
    if lesson.steps:
        yield _words(f"## {_('All steps')}")
        yield _code("bench.summary()")
    yield _words(f"## {_('Exercise')}", render(lesson.exercise.question))
    yield _code('# bench.answer("...")')


def _step(step: Step) -> str:
    """Return the primitives as a function that the reader may edit; `p` has the numbers."""
    if step.apply is None or step.source is not None:
        return f"bench.step({step.name!r})"
    name = step.name.replace("-", "_")
    return (
        f"def {name}(sch, p):\n{indent(step.code, '    ')}\n\n\nbench.step({step.name!r}, {name})"
    )


def _words(*paragraphs: str) -> Cell:
    return {"cell_type": "markdown", "metadata": {}, "source": "\n\n".join(paragraphs)}


def _code(text: str) -> Cell:
    return {
        "cell_type": "code",
        "execution_count": None,
        "metadata": {},
        "outputs": [],
        "source": text,
    }
