"""Runs an artifact on one image and decodes its answer; runs in the worker.

An artifact is machine code and an image is foreign data: the main process touches neither.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from tvmscope.core.artifact import Artifact
from tvmscope.core.model import TensorSpec
from tvmscope.core.vision import Answer, Head, PictureTask, Vision
from tvmscope.errors import UsageError
from tvmscope.images import heads, image_files, labels
from tvmscope.images.classify import classify, is_scores
from tvmscope.images.detect import detect
from tvmscope.images.draw import draw, save
from tvmscope.images.preprocess import CHANNELS, Placement, frame_of, preprocess
from tvmscope.messages import marked, msg
from tvmscope.runtime.loaded_artifact import LoadedArtifact, load_callable
from tvmscope.storage.files import write_npz


@dataclass(frozen=True, kw_only=True)
class Request:
    """One image, and what to keep of its result, as plain data that can be sent to the worker."""

    artifact: str
    picture: str
    vision: Vision
    threads: int
    warmup: int = 1
    """Runs before the first image, so that its time does not include a cold start."""
    score_threshold: float = 0.25
    nms_iou: float = 0.45
    save_vis: str | None = None
    save_outputs: str | None = None
    save_inputs: str | None = None


@dataclass
class Stopwatch:
    """Measures seconds, by the name of the step."""

    times_s: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.times_s[name] = time.perf_counter() - start


def answer(request: Request) -> Answer:
    """Decode, preprocess, run and interpret; raise if an image cannot be read."""
    artifact = _load(request.artifact, request.threads, request.warmup)
    vision = request.vision
    task = task_of(artifact.artifact, vision)
    clock = Stopwatch()
    with clock(marked("decode")):
        image = image_files.read(Path(request.picture))
    with clock(marked("preprocess")):
        arrays, placement = make_inputs(artifact.artifact, image, vision)
    with clock(marked("inference")):
        outputs = artifact.name_outputs(artifact.run(artifact.place(arrays)))
    found: dict[str, Any]
    with clock(marked("postprocess")):
        if task == "classify":
            scores = next(o for o in outputs.values() if is_scores(o.shape))
            found = {"labels": classify(scores, labels.namer(vision.labels, scores.size))}
        else:
            found = {"boxes": _boxes(artifact.artifact, outputs, placement, request)}
    said = Answer(
        picture=request.picture,
        width=image.width,
        height=image.height,
        task=task,
        times_s=clock.times_s,
        **found,
    )
    if request.save_vis is not None:
        save(draw(image, said), Path(request.save_vis))
    for path, kept in ((request.save_outputs, outputs), (request.save_inputs, arrays)):
        if path is not None:
            write_npz(Path(path), kept)
    return said


@lru_cache(maxsize=1)
def _load(path: str, threads: int, warmup: int) -> LoadedArtifact:
    loaded = load_callable(Path(path), threads=threads)
    specs = loaded.artifact.inputs
    for _ in range(warmup):
        zeros = {spec.name: np.zeros(spec.shape, spec.dtype) for spec in specs}
        loaded.name_outputs(loaded.run(loaded.place(zeros)))
    return loaded


def task_of(artifact: Artifact, vision: Vision) -> PictureTask:
    """Return the requested task, or the one that the outputs' shapes imply."""
    shapes = [spec.shape for spec in artifact.outputs]
    if vision.task == "detect" or (vision.task is None and head_of(shapes, vision)):
        if head_of(shapes, vision) is None:
            raise UsageError(
                msg(
                    "no detector's outputs are recognised in {outputs}; name the layout: --head "
                    "{names}",
                    outputs=_listed(artifact),
                    names="|".join(heads.NAMES),
                )
            )
        return "detect"
    if any(is_scores(shape) for shape in shapes):
        return "classify"
    raise UsageError(
        msg(
            "{outputs} is neither a classifier's nor a known detector's output; name it: --task "
            "detect --head {names}",
            outputs=_listed(artifact),
            names="|".join(heads.NAMES),
        )
    )


def head_of(shapes: list[tuple[int, ...]], vision: Vision) -> Head | None:
    """Return the requested head, or the one that the shapes imply."""
    return vision.head or heads.recognise(shapes, len(vision.labels) or None)


def _listed(artifact: Artifact) -> str:
    return ", ".join(f"{spec.name}{list(spec.shape)}" for spec in artifact.outputs)


def picture_input(artifact: Artifact) -> TensorSpec:
    """Return the input for the image: the one with four dimensions, of which one is colours."""
    for spec in artifact.inputs:
        if len(spec.shape) == 4 and (spec.shape[1] in CHANNELS or spec.shape[3] in CHANNELS):
            return spec
    raise UsageError(
        msg(
            "{model} takes no image: no input has the shape 1x3xHxW or 1xHxWx3",
            model=artifact.model,
        )
    )


def make_inputs(
    artifact: Artifact, image: Any, vision: Vision
) -> tuple[dict[str, np.ndarray], Placement]:
    """Return the image's input, and (for graphs with NMS inside) its height and width."""
    spec = picture_input(artifact)
    array, placement = preprocess(image, spec, vision.preprocess)
    arrays = {spec.name: array}
    for other in artifact.inputs:
        if other.name == spec.name:
            continue
        if other.shape not in ((1, 2), (2,)):
            raise UsageError(
                msg("input '{name}' cannot be made from an image; use --inputs", name=other.name)
            )
        size = np.array([image.height, image.width], other.dtype)
        arrays[other.name] = size.reshape(other.shape)
    return arrays, placement


def _boxes(
    artifact: Artifact, outputs: dict[str, np.ndarray], placement: Placement, request: Request
) -> Any:
    vision = request.vision
    frame = frame_of(picture_input(artifact), vision.preprocess.layout)
    context = heads.Context(frame.width, frame.height, vision.anchors, len(vision.labels) or None)
    head = head_of([o.shape for o in outputs.values()], vision)
    assert head is not None  # task_of has refused artifacts without one
    return detect(
        heads.decode(head, list(outputs.values()), context),
        placement,
        lambda count: labels.namer(vision.labels, count),
        score=request.score_threshold,
        iou=request.nms_iou,
    )
