"""Reads the image settings in an ONNX file's metadata: class names and preprocessing."""

from __future__ import annotations

import ast
from typing import Any

import onnx

from tvmscope.core.vision import PictureTask, Preprocess, Vision

_LETTERBOX = Preprocess(fit="letterbox", scale=1 / 255)
"""The preprocessing of every Ultralytics detector; its exports have a `stride`."""
_TASKS: dict[str, PictureTask] = {"detect": "detect", "classify": "classify"}


def vision_of_onnx(model: onnx.ModelProto) -> Vision | None:
    """Read the `names`, `task` and `stride` that exporters write; None if there are no names."""
    about = {entry.key: entry.value for entry in model.metadata_props}
    names = _names(about.get("names", ""))
    if not names:
        return None
    task = _TASKS.get(about.get("task", ""))
    if task == "classify":
        preprocess = Preprocess(fit="crop", scale=1 / 255)
    else:
        preprocess = _LETTERBOX if "stride" in about else Preprocess()
    return Vision(task=task, labels=names, preprocess=preprocess)


def _names(text: str) -> tuple[str, ...]:
    """Parse `{0: 'person', 1: 'car'}` or `['person', 'car']`, in Python or JSON syntax."""
    try:
        data: Any = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return ()  # foreign text: a file without usable names is still a valid model
    if isinstance(data, dict):
        try:
            data = [data[key] for key in sorted(data, key=int)]
        except (ValueError, TypeError):
            return ()
    return tuple(map(str, data)) if isinstance(data, list | tuple) else ()
