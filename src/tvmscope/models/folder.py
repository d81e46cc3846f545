"""Reads and writes model.json, the file that makes a prepared folder complete."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from tvmscope.core.model import Model, Prepared
from tvmscope.core.vision import Vision
from tvmscope.errors import SchemaError
from tvmscope.messages import msg
from tvmscope.models.resolve import Source
from tvmscope.storage.codec import decode, encode
from tvmscope.storage.files import write_text_atomic

ONNX_ERROR = "onnx_error.txt"
"""Replaces model.onnx when a torch model cannot be exported: one line with the reason."""


@dataclass(frozen=True)
class TorchOrigin:
    """The data with which a torch worker rebuilds the original module."""

    source: Source
    seed: int
    state_digest: str


def write_json(
    folder: Path,
    model: Model,
    origin: TorchOrigin | None = None,
    vision: Vision | None = None,
) -> None:
    """Write the fields of `Model`, and `torch` for workers; this file comes last, atomically."""
    more = {"torch": origin, "vision": vision}
    data = encode(model) | {k: encode(v) for k, v in more.items() if v is not None}
    write_text_atomic(folder / "model.json", json.dumps(data, indent=1) + "\n")


def read_prepared(folder: str | Path) -> Prepared:
    """Return the prepared model in a folder."""
    return Prepared(Path(folder), decode(Model, _read(Path(folder))))


def read_origin(folder: str | Path) -> TorchOrigin:
    """Return how to rebuild the torch module."""
    data = _read(Path(folder))
    if "torch" not in data:
        raise SchemaError(
            msg(
                "'{folder}' holds an ONNX model; there is no torch module to rebuild", folder=folder
            )
        )
    return decode(TorchOrigin, data["torch"])


def _read(folder: Path) -> dict[str, object]:
    try:
        return dict(json.loads((folder / "model.json").read_text(encoding="utf-8")))
    except (OSError, ValueError) as e:
        raise SchemaError(
            msg("'{folder}' is not a prepared model (no readable model.json)", folder=folder)
        ) from e
