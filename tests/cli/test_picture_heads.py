"""Detectors with outputs of every known layout, compiled from ONNX and shown a picture."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from support.command import asked, refuses, run

SIZE = 32
BOX = [12.0, 20.0, 16.0, 8.0]
SEEN = [8, 24, 40, 36]
"""The box as it lies on the 64x48 picture."""
CAR, CAT = 2, 15
SCORES = {CAR: 0.8, CAT: 0.6}
CFG = """
[net]
width=32
height=32
[yolo]
mask=1
anchors=3,3, 16,8
"""


def rows(count: int, objectness: bool) -> np.ndarray:
    """A car, the same car again, and a cat at its place; the others score nothing."""
    found = np.zeros((count, 4 + objectness + 80), np.float32)
    found[:, :4] = [16, 16, 4, 4]
    for row, (name, score) in enumerate([(CAR, 0.8), (CAR, 0.7), (CAT, 0.6)]):
        found[row, :4] = BOX
        if objectness:
            found[row, 4] = 1.0
        found[row, 4 + objectness + name] = score
    return found


def raw() -> np.ndarray:
    """One scale of 4x4 cells with one anchor: the box lies in the cell of column 1, row 2."""
    head = np.full((1, 85, 4, 4), -9.0, np.float32)
    head[0, :4] = 0.0
    head[0, 4, 2, 1] = 9.0
    head[0, 5 + CAR, 2, 1] = np.log(0.8 / 0.2)
    return head


def end2end() -> np.ndarray:
    left, top, right, bottom = 4.0, 16.0, 20.0, 24.0
    found = np.zeros((1, 50, 6), np.float32)
    for row, (name, score) in enumerate(SCORES.items()):
        found[0, row] = [left, top, right, bottom, score, name]
    return found


HEADS = {
    "ultralytics": (rows(100, objectness=False).T[None], (), SCORES),
    "objectness": (rows(100, objectness=True)[None], (), SCORES),
    "raw": (raw(), ("--head", "darknet:net.cfg"), {CAR: 0.8}),
    "end2end": (end2end(), (), SCORES),
}


def save_detector(path: Path, output: np.ndarray) -> None:
    """A graph that says `output` about every picture, and still depends on it."""
    nodes = [
        helper.make_node("ReduceMean", ["image"], ["mean"], keepdims=0),
        helper.make_node("Mul", ["mean", "zero"], ["nothing"]),
        helper.make_node("Add", ["fixed", "nothing"], ["found"]),
    ]
    save_graph(path, nodes, {"fixed": output, "zero": np.float32(0)},
               {"image": [1, 3, SIZE, SIZE]}, {"found": list(output.shape)})  # fmt: skip


def save_graph(path, nodes, constants, inputs, outputs, more=()) -> None:
    ends = [
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n, shape in side.items()]
        for side in (inputs, outputs)
    ]
    weights = [numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items()]
    graph = helper.make_graph(nodes, "detector", ends[0], [*ends[1], *more], weights)
    opset = [helper.make_opsetid("", 18)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), path)


def compiled(folder: Path, name: str) -> None:
    done = run("compile", f"{name}.onnx", "-o", name, "--target", "cpu", "-q", cwd=folder)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", HEADS)
def test_a_head_is_recognised_and_its_boxes_found(
    name: str, tmp_path: Path, pictures: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output, flags, expected = HEADS[name]
    save_detector(tmp_path / f"{name}.onnx", output)
    compiled(tmp_path, name)
    (tmp_path / "net.cfg").write_text(CFG)
    monkeypatch.chdir(tmp_path)
    (answer,) = asked(tmp_path, name, "--image", str(pictures / "a.png"), *flags)["pictures"]
    assert answer["task"] == "detect"
    assert {b["index"]: b["score"] for b in answer["boxes"]} == pytest.approx(expected, abs=2e-3)
    first = "class 2" if name == "end2end" else "car"  # results do not tell the class count
    assert answer["boxes"][0]["name"] == first
    for box in answer["boxes"]:
        assert box["corners"] == pytest.approx(SEEN, abs=0.05)
    if name == "raw":
        without = run("run", str(tmp_path / name), "--image", str(pictures / "a.png"), "-q")
        refuses(without, 2, "--head darknet:model.cfg")


def two_input_graph(path: Path) -> None:
    """As the ONNX zoo's YOLOv3: takes the picture's size too, and suppresses boxes itself."""
    shares = np.tile(np.array([0.5, 0.5, 0.9, 0.9], np.float32), (1, 6, 1))
    shares[0, 3] = [0.25, 0.125, 0.75, 0.5]  # top, left, bottom, right
    scores = np.full((1, 2, 6), 0.1, np.float32)
    scores[0, 1, 3] = 0.9
    constants = {
        "shares": shares, "fixed": scores, "most": np.array([5]), "zero": np.float32(0),
        "iou": np.array([0.45], np.float32), "least": np.array([0.25], np.float32),
    }  # fmt: skip
    nodes = [
        helper.make_node("ReduceMean", ["image"], ["mean"], keepdims=0),
        helper.make_node("Mul", ["mean", "zero"], ["nothing"]),
        helper.make_node("Concat", ["image_shape", "image_shape"], ["size"], axis=1),
        helper.make_node("Mul", ["shares", "size"], ["boxes"]),
        helper.make_node("Add", ["fixed", "nothing"], ["scores"]),
        helper.make_node(
            "NonMaxSuppression", ["boxes", "scores", "most", "iou", "least"], ["chosen"]
        ),
    ]
    chosen = helper.make_tensor_value_info("chosen", TensorProto.INT64, ["count", 3])
    inputs = {"image": [1, 3, SIZE, SIZE], "image_shape": [1, 2]}
    outputs = {"boxes": [1, 6, 4], "scores": [1, 2, 6]}
    save_graph(path, nodes, constants, inputs, outputs, [chosen])


def test_a_graph_that_suppresses_boxes_itself_is_given_the_pictures_size(
    tmp_path: Path, pictures: Path
) -> None:
    two_input_graph(tmp_path / "zoo.onnx")
    compiled(tmp_path, "zoo")
    (answer,) = asked(tmp_path, "zoo", "--image", str(pictures / "a.png"))["pictures"]
    (box,) = answer["boxes"]
    assert (box["index"], box["score"]) == (1, pytest.approx(0.9))
    assert box["corners"] == pytest.approx([8, 12, 32, 36])  # of 64x48
