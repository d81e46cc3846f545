"""The model's own operators by name, so that every backend uses the same names."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

from tvmscope.storage.codec import decode, encode
from tvmscope.storage.files import write_text_atomic

FILE_NAME = "operators.json"


@dataclass(frozen=True, kw_only=True)
class Operators:
    """The content of `operators.json` in a prepared model's folder."""

    names: tuple[str, ...] = ()
    """All operators, in the order in which the model runs them."""
    onnx: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """The operators that each node of `model.onnx` computes, by the node's name."""


def write(operators: Operators, folder: Path) -> None:
    """Write the operators into a prepared folder."""
    write_text_atomic(folder / FILE_NAME, json.dumps(encode(operators), indent=1) + "\n")


def read(folder: Path) -> Operators:
    """Read the operators; a folder without the file (an artifact that runs alone) has none."""
    file = folder / FILE_NAME
    if not file.is_file():
        return Operators()
    return decode(Operators, json.loads(file.read_text(encoding="utf-8")))
