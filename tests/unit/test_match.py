"""Two answers about one picture: which box is which, and what counts as the same."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tvmscope.core.vision import LIKENESS, Answer, Box, Label, Sighting
from tvmscope.images.match import match, pair_boxes, same_labels


def box(index: int, left: float, score: float = 0.9, wide: float = 100) -> Box:
    return Box(index=index, name=str(index), score=score, corners=(left, 0, left + wide, 100))


def pairs(before: list[Box], after: list[Box]) -> list[tuple[object, object, bool]]:
    found = pair_boxes(before, after, LIKENESS, 0.25)
    return [(p.before and p.before.corners[0], p.after and p.after.corners[0], p.same)
            for p in found]  # fmt: skip


def test_each_box_has_one_partner_whatever_the_order() -> None:
    before = [box(1, 0), box(1, 20), box(1, 500)]
    after = [box(1, 500), box(1, 20.2), box(1, 0.2)]
    assert pairs(before, after) == [(0, 0.2, True), (20, 20.2, True), (500, 500, True)]


def test_a_box_of_the_same_class_goes_before_a_closer_one_of_another() -> None:
    assert pairs([box(1, 0)], [box(2, 0), box(1, 10)]) == [(0, 10, False), (None, 0, False)]
    assert pairs([box(1, 0)], [box(2, 0)]) == [(0, 0, False)]


@pytest.mark.parametrize("left, score, same", [(0.4, 0.9, True), (2, 0.9, False),
                                               (0, 0.904, True), (0, 0.91, False)])  # fmt: skip
def test_a_pair_is_the_same_within_iou_and_score(left: float, score: float, same: bool) -> None:
    (pair,) = pair_boxes([box(1, 0)], [box(1, left, score)], LIKENESS, 0.25)
    assert pair.same is same
    assert pair.score_change == pytest.approx(score - 0.9)


def test_a_lone_box_counts_unless_it_sits_at_the_threshold() -> None:
    assert pairs([box(1, 0, 0.253)], []) == [(0, None, True)]
    assert pairs([], [box(1, 0, 0.4)]) == [(None, 0, False)]
    assert pairs([], []) == []


def labels(**scores: float) -> tuple[Label, ...]:
    return tuple(Label(index=ord(n), name=n, score=s) for n, s in scores.items())


@pytest.mark.parametrize(
    "before, after, same",
    [
        (labels(a=0.6, b=0.2), labels(a=0.603, b=0.2), True),
        (labels(a=0.4, b=0.399), labels(b=0.4, a=0.399), True),
        (labels(a=0.6, b=0.2), labels(a=0.6, c=0.2), True),
        (labels(a=0.6, b=0.2), labels(b=0.6, a=0.2), False),
        (labels(a=0.6, b=0.3), labels(a=0.6, c=0.1), False),
        (labels(a=1.0), (), False),
    ],
)
def test_top_fives(before: tuple[Label, ...], after: tuple[Label, ...], same: bool) -> None:
    assert same_labels(before, after, LIKENESS) is same
    assert same_labels(after, before, LIKENESS) is same


def test_a_picture_that_one_could_not_read_is_not_the_same() -> None:
    good = Answer(picture="a.jpg", boxes=(box(1, 0),))
    assert match(good, good, LIKENESS, 0.25).same
    bad = match(good, replace(good, failure="broken"), LIKENESS, 0.25)
    assert bad == Sighting(picture="a.jpg", failure="broken", same=False)
