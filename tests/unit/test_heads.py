"""The same two boxes, written in every layout that detectors use, are found in each."""

from __future__ import annotations

import numpy as np
import pytest

from tvmscope.core.vision import Anchors
from tvmscope.errors import UsageError
from tvmscope.images.detect import detect
from tvmscope.images.heads import Context, decode, decode_darknet, recognise
from tvmscope.images.labels import namer
from tvmscope.images.preprocess import Placement

WIDTH, HEIGHT, CLASSES, COUNT = 96, 64, 7, 40
CENTRED = np.array([[20, 30, 10, 12], [70, 40, 30, 20]], np.float32)
CORNERS = np.array([[15, 24, 25, 36], [55, 30, 85, 50]], np.float32)
LABELS, SCORES = [3, 6], [0.9, 0.6]
CONTEXT = Context(WIDTH, HEIGHT)
WHOLE = Placement((1.0, 1.0), (0.0, 0.0), WIDTH, HEIGHT)


def rows(objectness: bool) -> np.ndarray:
    """COUNT rows of which two hold the boxes; the others spread over the input without a score."""
    rng = np.random.default_rng(0)
    values = np.zeros((COUNT, 4 + objectness + CLASSES), np.float32)
    values[:, :4] = rng.uniform(0, 60, (COUNT, 4))
    for row, box, label, score in zip((5, 17), CENTRED, LABELS, SCORES, strict=True):
        values[row, :4] = box
        if objectness:
            values[row, 4] = 0.95
        values[row, 4 + objectness + label] = score / (0.95 if objectness else 1)
    return values


def found(head, outputs, context=CONTEXT):
    boxes = detect(
        decode(head, outputs, context), WHOLE, lambda n: namer((), n), score=0.25, iou=0.45
    )
    return [(box.index, box.score, box.corners) for box in boxes]


def check(boxes, by=0.02):
    assert [index for index, _, _ in boxes] == LABELS
    np.testing.assert_allclose([score for _, score, _ in boxes], SCORES, rtol=1e-3)
    np.testing.assert_allclose([corners for _, _, corners in boxes], CORNERS, atol=by)


def test_boxes_outside_the_picture_are_not_seen():
    values = rows(objectness=True)
    for row, x in ((8, -20), (9, WIDTH + 20)):  # clipped they have no width left
        values[row, :4] = (x, 30, 10, 12)
        values[row, 4:6] = 0.99
    check(found("yolov5", [values[None]]))


@pytest.mark.parametrize("normalised", [False, True])
@pytest.mark.parametrize("head", ["yolov5", "yolov8"])
def test_decoded_heads_in_pixels_and_in_shares(head, normalised):
    values = rows(objectness=head == "yolov5")
    if normalised:
        values[:, :4] /= [WIDTH, HEIGHT] * 2
    output = values[None] if head == "yolov5" else values.T[None]
    assert recognise([output.shape]) == head
    check(found(head, [output]))


def test_an_ultralytics_head_that_was_turned_needs_the_class_count():
    context = Context(WIDTH, HEIGHT, labels=CLASSES)
    check(found("yolov5", [rows(objectness=False)[None]], context))


def test_results_of_nms_inside():
    output = np.zeros((1, 300, 6), np.float32)
    output[0, :2, :4], output[0, :2, 4], output[0, :2, 5] = CORNERS, SCORES, LABELS
    assert recognise([output.shape]) == "end2end"
    check(found("end2end", [output]))


def test_two_input_form_names_boxes_in_the_picture():
    corners = np.zeros((1, COUNT, 4), np.float32)
    scores = np.zeros((1, CLASSES, COUNT), np.float32)
    for row, box, label, score in zip((5, 17), CORNERS, LABELS, SCORES, strict=True):
        corners[0, row] = box[[1, 0, 3, 2]]
        scores[0, label, row] = score
    selected = np.array([[0, 3, 5], [0, 6, 17], [-1, -1, -1]], np.int64)
    outputs = [corners, scores, selected]
    assert recognise([o.shape for o in outputs]) == "nms"
    check(found("nms", outputs))
    check(found("nms", [selected.astype(np.int32), scores, corners]))


def reference(head: np.ndarray, anchors: Anchors) -> np.ndarray:
    """Darknet's equations, cell by cell."""

    def sigmoid(v: float) -> float:
        return 1 / (1 + np.exp(-v))

    _, channels, high, wide = head.shape
    each = channels // len(anchors.sizes)
    out = []
    for a, (aw, ah) in enumerate(anchors.sizes):
        for y in range(high):
            for x in range(wide):
                t = head[0, a * each : (a + 1) * each, y, x].astype(np.float64)
                s = anchors.scale_xy
                out.append([
                    (x + sigmoid(t[0]) * s - 0.5 * (s - 1)) / wide,
                    (y + sigmoid(t[1]) * s - 0.5 * (s - 1)) / high,
                    np.exp(t[2]) * aw / WIDTH, np.exp(t[3]) * ah / HEIGHT,
                    *(sigmoid(v) for v in t[4:]),
                ])  # fmt: skip
    return np.array(out)


@pytest.mark.parametrize("scale_xy", [1.0, 1.05, 2.0])
def test_raw_heads_follow_darknets_equations(scale_xy):
    rng = np.random.default_rng(1)
    head = rng.normal(0, 2, (1, 3 * (5 + CLASSES), 2, 3)).astype(np.float32)
    anchors = Anchors(((10.0, 13.0), (33.0, 23.0), (62.0, 45.0)), scale_xy)
    np.testing.assert_allclose(
        decode_darknet(head, anchors, CONTEXT), reference(head, anchors), rtol=1e-5, atol=1e-6
    )
    twice = Context(WIDTH, HEIGHT, anchors=(anchors, anchors))
    candidates = decode("darknet", [head, head[:, :, :1]], twice)
    assert candidates.corners.shape == (3 * (6 + 3), 4)
    assert recognise([head.shape, head[:, :, :1].shape]) == "darknet"


def test_raw_heads_without_anchors_say_where_to_get_them():
    with pytest.raises(UsageError, match=r"--head darknet:model\.cfg"):
        decode("darknet", [np.zeros((1, 36, 2, 3), np.float32)], CONTEXT)


def test_extreme_values_give_no_warning_and_no_box():
    head = np.full((1, 12, 2, 3), -1e4, np.float32)
    context = Context(WIDTH, HEIGHT, anchors=(Anchors(((1.0, 1.0),)),))
    with np.errstate(all="raise", under="ignore"):
        assert found("darknet", [head], context) == []
    broken = rows(objectness=True)[None]
    broken[0, 5, 0] = np.nan
    assert [index for index, _, _ in found("yolov5", [broken])] == [6]


@pytest.mark.parametrize(
    "shapes", [[(1, 1000)], [(1, 5, 3)], [(2, 85, 8400)], [(1, 3, 4, 4), (1, 6, 2, 2)], []]
)
def test_other_shapes_are_not_recognised(shapes):
    assert recognise(shapes) is None


def test_a_named_head_that_does_not_fit_is_refused():
    with pytest.raises(UsageError, match="do not match the head 'nms'"):
        decode("nms", [np.zeros((1, 5, 85), np.float32)], CONTEXT)
