"""Non-maximum suppression agrees with a plain loop, and with torchvision's where it loads."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tvmscope.images.boxes import corners_of, overlap, suppress


def iou_of(a: np.ndarray, b: np.ndarray) -> float:
    """In single precision, as the real ones compute it."""
    one, zero = np.float32, np.float32(0)
    wide = max(zero, one(min(a[2], b[2]) - max(a[0], b[0])))
    high = max(zero, one(min(a[3], b[3]) - max(a[1], b[1])))
    shared = one(wide * high)
    area_a, area_b = one((a[2] - a[0]) * (a[3] - a[1])), one((b[2] - b[0]) * (b[3] - b[1]))
    union = one(area_a + area_b - shared)
    return float(shared / union) if union > 0 else 0.0


def plain(corners: np.ndarray, scores: np.ndarray, classes: np.ndarray, iou: float) -> list[int]:
    """Each box, best first, stays unless a better one of its class that stayed overlaps it."""
    kept: list[int] = []
    for i in sorted(range(len(scores)), key=lambda i: -scores[i]):
        if all(classes[i] != classes[j] or iou_of(corners[i], corners[j]) <= iou for j in kept):
            kept.append(i)
    return kept


@cache
def torchvision_nms() -> Any:
    """The real one; None beside a CPU build of torch, which cannot load its library."""
    torch = pytest.importorskip("torch")
    from tvmscope.models.loaders.torchvision_import import import_torchvision

    nms = import_torchvision().ops.nms
    try:
        nms(torch.zeros(1, 4), torch.zeros(1), 0.5)
    except (NotImplementedError, RuntimeError):  # what torch raises for an operator without code
        return None
    return nms


@st.composite
def scenes(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Boxes on a coarse grid, so that equal, nested, touching and empty ones are common."""
    count = draw(st.integers(0, 25))
    rows = [[draw(st.integers(0, 8)) for _ in range(4)] for _ in range(count)]
    raw = np.array(rows, np.float32).reshape(-1, 2, 2) * np.float32(0.75)
    corners = np.concatenate((raw.min(1), raw.max(1)), -1)
    scores = np.array([draw(st.integers(0, 12)) for _ in range(count)], np.float32) / 12
    classes = np.array([draw(st.integers(0, 2)) for _ in range(count)], np.int64)
    return corners, scores, classes


@settings(deadline=None, max_examples=300)
@given(scene=scenes(), iou=st.sampled_from([0.0, 0.2, 0.45, 0.5, 1.0]))
def test_agrees_with_a_plain_loop(scene: tuple[np.ndarray, ...], iou: float) -> None:
    assert suppress(*scene, iou).tolist() == plain(*scene, iou)


@settings(deadline=None, max_examples=100)
@given(scene=scenes(), iou=st.sampled_from([0.2, 0.45, 0.7]))
def test_agrees_with_torchvision(scene: tuple[np.ndarray, ...], iou: float) -> None:
    nms = torchvision_nms()
    if nms is None:
        pytest.skip("this torchvision has no compiled nms")
    import torch

    corners, scores, classes = scene
    expected: list[int] = []
    for label in np.unique(classes):
        (where,) = np.nonzero(classes == label)
        kept = nms(torch.from_numpy(corners[where]), torch.from_numpy(scores[where]), iou)
        expected += where[kept.numpy()].tolist()
    assert sorted(suppress(*scene, iou).tolist()) == sorted(expected)


def test_boxes_of_other_classes_stay() -> None:
    corners = np.array([[0, 0, 10, 10]] * 3, np.float32)
    kept = suppress(corners, np.array([0.5, 0.9, 0.8]), np.array([1, 1, 2]), 0.45)
    assert kept.tolist() == [1, 2]


def test_thousands_of_overlapping_boxes() -> None:
    rng = np.random.default_rng(0)
    centred = rng.uniform(0, 640, (8000, 4)).astype(np.float32)
    centred[:, 2:] = rng.uniform(20, 200, (8000, 2))
    kept = suppress(corners_of(centred), rng.random(8000), rng.integers(0, 80, 8000), 0.45)
    assert 1000 < len(kept) < 8000


def test_overlap_of_halves() -> None:
    others = np.array([[0, 0, 2, 1], [2, 2, 3, 3], [0, 0, 0, 0]], np.float32)
    assert overlap(np.array([0, 0, 2, 2], np.float32), others).tolist() == [0.5, 0, 0]


@settings(deadline=None, max_examples=100)
@given(scene=scenes(), iou=st.sampled_from([0.2, 0.45, 0.7]))
def test_the_kernel_for_detection_models_is_the_plain_loop(
    scene: tuple[np.ndarray, ...], iou: float
) -> None:
    torch = pytest.importorskip("torch")
    from tvmscope.runtime.torchvision_operators import _nms

    corners, scores, _ = scene
    kept = _nms(torch.from_numpy(corners), torch.from_numpy(scores), iou)
    assert kept.tolist() == plain(corners, scores, np.zeros(len(scores), np.int64), iou)
