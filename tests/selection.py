"""Graphs that sort and suppress, and what numpy makes of the same numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from tvm import relax

from tvmscope.compiler import pipeline, targets
from tvmscope.core.options import CompileOptions
from tvmscope.core.target import Target

Array = np.ndarray[Any, Any]


def lowered(target: Target, make: Any, *inputs: Array) -> pipeline.Lowered:
    builder = relax.BlockBuilder()
    types = [relax.TensorType(a.shape, str(a.dtype)) for a in inputs]
    params = [relax.Var(f"x{n}", t) for n, t in enumerate(types)]
    with builder.function("main", params):
        with builder.dataflow():
            out = builder.emit_output(make(*params))
        builder.emit_func_output(out)
    made = tvm.target.Target(targets.to_tvm(target))
    return pipeline.run(builder.get(), target, made, CompileOptions())


def compiled(target: Target, make: Any, *inputs: Array) -> Callable[..., list[Array]]:
    """The graph as a function that runs on the target's device, which has to be here."""
    module = lowered(target, make, *inputs).module
    built = relax.build(module, tvm.target.Target(targets.to_tvm(target)), relax_pipeline=None)
    device = tvm.cuda() if target.device == "cuda" else tvm.cpu()
    machine = relax.VirtualMachine(built, device)

    def run(*arrays: Array) -> list[Array]:
        found = machine["main"](*(tvm.runtime.tensor(a, device) for a in arrays))
        return [found.numpy()] if hasattr(found, "numpy") else [f.numpy() for f in found]

    return run


def results(target: Target, make: Any, *inputs: Array) -> list[Array]:
    """What the graph computes of the inputs."""
    return compiled(target, make, *inputs)(*inputs)


def ordered(data: Array, axis: int, *, descending: bool) -> Array:
    """numpy's stable order, ascending or turned round with equal elements as they were."""
    if not descending:
        return np.argsort(data, axis, kind="stable")
    backwards = np.argsort(np.flip(data, axis), axis, kind="stable")
    return np.flip(data.shape[axis] - 1 - backwards, axis)


def suppressed(boxes: Array, scores: Array, most: int, overlap: float, score: float) -> Array:
    """Batch, class and box, one after the other; a box goes above `overlap`."""
    found = []
    for batch, kind in np.ndindex(scores.shape[:2]):
        stayed: list[int] = []
        for box in np.argsort(-scores[batch, kind], kind="stable"):
            enough = len(stayed) == most or not scores[batch, kind, box] > score
            mine = boxes[batch, box]
            if not enough and all(_iou(mine, boxes[batch, b]) <= overlap for b in stayed):
                stayed.append(int(box))
        found += [(batch, kind, box) for box in stayed]
    return np.array(found, np.int64).reshape(-1, 3)


def _iou(a: Array, b: Array) -> float:
    sides = np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2])
    shared = np.prod(np.maximum(sides, np.float32(0)))
    joint = np.prod(a[2:] - a[:2]) + np.prod(b[2:] - b[:2]) - shared
    return float(shared / joint) if joint > 0 else 0.0


def picture(seed: int, batch: int, classes: int, count: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    corners = rng.integers(0, 12, (batch, count, 2))
    boxes = np.concatenate([corners, corners + rng.integers(1, 9, corners.shape)], -1)
    scores = rng.integers(0, 50, (batch, classes, count)) / 50
    return boxes.astype(np.float32), scores.astype(np.float32)


def nms(boxes: Any, scores: Any, most: int, overlap: float, score: float) -> relax.Expr:
    numbers = (relax.const(most, "int64"), *(relax.const(v, "float32") for v in (overlap, score)))
    return relax.op.vision.all_class_non_max_suppression(boxes, scores, *numbers)
