"""`tvmscope export`: the model as the other runtimes get it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from support.command import refuses, run


def operators(file: Path) -> Counter[str]:
    return Counter(node.op_type for node in onnx.load(file).graph.node)


@pytest.mark.parametrize(("form", "scatters"), [("", False), (":scatter", True)])
def test_boxes_are_decoded_both_ways_that_people_meet(
    tmp_path: Path, form: str, scatters: bool
) -> None:
    done = run("export", f"yolov3_tiny{form}", "-o", "y.onnx", cwd=tmp_path, timeout_s=300)
    assert done.returncode == 0, done.stderr
    found = operators(tmp_path / "y.onnx")
    assert ("ScatterND" in found) == scatters
    session = onnxruntime.InferenceSession(tmp_path / "y.onnx")
    (given,) = session.get_inputs()
    (boxes,) = session.run(None, {given.name: np.zeros(given.shape, np.float32)})
    assert boxes.shape == (1, 2535, 85)


def test_it_writes_over_nothing_and_names_what_it_cannot_write(tmp_path: Path, net: Path) -> None:
    (tmp_path / "there.onnx").write_text("mine")
    refuses(run("export", str(net), "-o", "there.onnx", cwd=tmp_path), 2, "will not overwrite")
    refuses(run("export", str(net), "-o", "folder", cwd=tmp_path), 2, "ends in .onnx")
    assert (tmp_path / "there.onnx").read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["there.onnx"]
