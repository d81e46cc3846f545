"""The description of a compiled model on disk."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from tvmscope.core.model import TensorSpec
from tvmscope.core.precision import Precision
from tvmscope.core.profile import Edges
from tvmscope.core.target import Target
from tvmscope.core.vision import Vision
from tvmscope.messages import Text
from tvmscope.plugins import Plugin

ARTIFACT_SCHEMA = 2
FALLBACK = "tvmscope.fallback."
"""The prefix of the names of functions that run in a framework."""
FRAMEWORKS = {"onnxruntime": "ONNX Runtime", "torch": "PyTorch"}
"""The frameworks that parts of a model can run in, by the name of their package."""


@dataclass(frozen=True, kw_only=True)
class KernelCall:
    """One call of a compiled kernel in the model, and the source operators it computes."""

    kernel: str
    source_ops: tuple[str, ...]
    edges: Edges | None = None
    """Where it lies in the program; None in older artifacts, or if it is not known."""


def sources_of(calls: Iterable[KernelCall]) -> tuple[str, ...]:
    """Return the source operators that calls compute, each once."""
    return tuple(dict.fromkeys(op for call in calls for op in call.source_ops))


def edges_of(calls: Iterable[KernelCall]) -> Edges | None:
    """Return where calls lie in the program; None if that is not the same for all."""
    found = {call.edges for call in calls}
    return found.pop() if len(found) == 1 else None


@dataclass(frozen=True)
class StoredTensor:
    """A constant, and where it begins in the artifact's file of weights."""

    shape: tuple[int, ...]
    dtype: str
    offset: int


@dataclass(frozen=True, kw_only=True)
class Fallback:
    """A part of the model that runs in a framework because its operators have no kernel."""

    name: str
    """The packed function that the compiled code calls."""
    framework: Literal["onnxruntime", "torch"]
    operators: tuple[str, ...]
    """The operators inside, as the source names them."""
    reason: Text
    """Why the first of them is not compiled."""
    digest: str
    """The digest of the part's model, which is stored beside the library."""
    fixed: bool = True
    """Whether the sizes of its results are known before it runs."""

    @property
    def file(self) -> str:
        """The part's model file in the artifact's folder."""
        suffix = "onnx" if self.framework == "onnxruntime" else "pt2"
        return f"{self.name.rpartition('.')[2]}.{suffix}"


@dataclass(frozen=True, kw_only=True)
class Artifact:
    """The content of an artifact folder's meta.json, plus where the folder is."""

    path: Path
    model: str
    source: str
    model_digest: str
    library_digest: str
    target: Target
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    exec_mode: str
    precision: Precision
    pipeline: str
    graph: bool = False
    disabled_passes: tuple[str, ...] = ()
    overrides: dict[str, Any] = field(default_factory=dict)
    """The passes that were disabled, and settings of passes, by name."""
    tuned: bool = False
    """Whether any kernel was chosen by a tuning record."""
    threads: int | None = None
    build_s: float = 0.0
    size_bytes: int = 0
    """The size of code and weights."""
    stored: tuple[StoredTensor, ...] = ()
    """The constants beside the library; the main function takes them after its inputs."""
    stored_digest: str | None = None
    generated_digest: str | None = None
    """The digest of the generated CUDA kernels beside the library; None if there are none."""
    libraries: dict[str, str] = field(default_factory=dict)
    """Libraries other than TVM that loading needs, and the oldest major version of each."""
    fallbacks: tuple[Fallback, ...] = ()
    """Parts that run in a framework, which loading then needs."""
    pass_times_s: dict[str, float] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    plugins: tuple[Plugin, ...] = ()
    """Passes that ran and schedule rules that were offered kernels, from other distributions."""
    kernels: tuple[KernelCall, ...] = ()
    warnings: tuple[Text, ...] = ()
    weights: Literal["pretrained", "random", "file"] = "file"
    format: Literal["torch", "onnx"] = "torch"
    """The format of the source model."""
    vision: Vision | None = None
    """How to run it on images, if that is known."""
