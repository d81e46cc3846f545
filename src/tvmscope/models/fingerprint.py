"""Identifies a model's content from its source, without loading it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from tvmscope.core.options import LoadOptions
from tvmscope.errors import TvmscopeError
from tvmscope.models.resolve import classify
from tvmscope.storage.codec import encode

_APART = b"location"
"""The key with which an ONNX file names its weight files."""


def fingerprint(source: str, options: LoadOptions) -> str | None:
    """Return a fingerprint; equal ones mean equal models. None if the source does not determine it.

    A Python file may import anything, a hub's model may change, and inputs from a file are read
    when the model is loaded.
    """
    try:
        found = classify(source)
    except TvmscopeError:  # loading it reports the error
        return None
    if options.inputs_file is not None or found.is_url:
        return None
    content = ""
    if found.kind in ("onnx", "pt2"):
        data = Path(found.ref).read_bytes()
        if found.kind == "onnx" and _APART in data:
            return None
        content = hashlib.sha256(data).hexdigest()
    elif found.kind not in ("builtin", "torchvision"):
        return None
    return json.dumps([found.kind, found.text, found.attribute, content, encode(options)])
