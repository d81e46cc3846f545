"""The whole matrix product and the whole convolution end near the measured roof; none takes long.

By the clock, so on a quiet machine: `pytest -m slow tests/slow/test_whole_lessons.py -s` shows each
step's share.
"""

from __future__ import annotations

import time

import pytest

from tvmscope.compiler import targets
from tvmscope.learn import catalog
from tvmscope.learn.lesson import Lesson
from tvmscope.learn.run import run
from tvmscope.learn.setting import Setting, known_roofs
from tvmscope.progress import Silent
from tvmscope.stages.places import cache_folder

pytestmark = pytest.mark.slow

LEAST = 0.8
"""Of the roof of as many cores as the lesson uses."""
LONGEST_S = 60.0
"""On two cores, with the roofs known."""


@pytest.mark.parametrize("name", ["matmul", "conv2d"])
def test_a_whole_lesson_ends_near_the_roof(name: str) -> None:
    found = run(catalog.find(name), Setting(target=targets.host_target(cache=cache_folder())))
    for step in found.steps:
        share = "-" if step.share is None else f"{step.share:.0%}"
        print(f"{name} {step.name}: {share} of the roof")
    last = found.steps[-1]
    assert last.share is not None, found.warnings
    assert last.share >= LEAST
    assert max(step.share or 0.0 for step in found.steps[:2]) < LEAST / 4, "from plain loops"


@pytest.mark.parametrize("lesson", catalog.lessons().values(), ids=lambda lesson: lesson.name)
def test_a_lesson_takes_less_than_a_minute(lesson: Lesson) -> None:
    target = targets.host_target(cache=cache_folder())
    known_roofs(target, Silent())  # measured once for a machine, not for each lesson
    start = time.monotonic()
    run(lesson, Setting(target=target))
    assert time.monotonic() - start < LONGEST_S
