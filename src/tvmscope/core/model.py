"""The description of a loaded model: its tensors, its origin and its digest."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Literal

from tvmscope.messages import Text


@dataclass(frozen=True)
class TensorSpec:
    """A named tensor with a fixed shape; dynamic dimensions are already bound."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def elements(self) -> int:
        """The number of elements (1 for a scalar)."""
        return prod(self.shape)


@dataclass(frozen=True, kw_only=True)
class Model:
    """A loaded model's identity."""

    name: str
    source: str
    format: Literal["torch", "onnx"]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    digest: str
    weights: Literal["pretrained", "random", "file"]
    notes: tuple[Text, ...] = ()

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The input shapes by name."""
        return {spec.name: spec.shape for spec in self.inputs}


@dataclass(frozen=True)
class Prepared:
    """A model stored in a folder, so that any process can use it without the original source.

    inputs.npz     one set of inputs, keyed by name
    reference.npz  the reference framework's outputs for them, keyed by output name
    model.pt2      the exported program (torch models)
    model.onnx     the graph with bound shapes (ONNX models; exported from torch where it exports)
    model.json     the `Model`, and what the torch workers need to load the original module
    """

    folder: Path
    model: Model

    @property
    def inputs_path(self) -> Path:
        return self.folder / "inputs.npz"

    @property
    def reference_path(self) -> Path:
        return self.folder / "reference.npz"

    @property
    def pt2_path(self) -> Path:
        return self.folder / "model.pt2"

    @property
    def onnx_path(self) -> Path:
        return self.folder / "model.onnx"

    @property
    def json_path(self) -> Path:
        return self.folder / "model.json"
