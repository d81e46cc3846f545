"""How a unit is computed: a template and its parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from tvmscope.storage.codec import decode, encode

Template = Literal[
    "conv2d", "matmul", "persistent", "matvec", "depthwise", "attention", "softmax", "norm",
    "pool", "mean", "cublaslt",
]  # fmt: skip
LIBRARY: Literal["cublaslt"] = "cublaslt"
"""The template that is no template of ours, but a call of NVIDIA's library."""
Layout = Literal["kn", "nk"]
RULE = "triton"
"""What generated kernels are known by in profiles and tuning records."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """A template's parameters; what `m`, `n` and `k` tile is the template's business."""

    template: Template
    m: int
    """Rows of a tile: pixels, matrix rows, queries."""
    n: int
    """Columns of a tile: output channels, matrix columns, keys."""
    k: int = 0
    """How much of the sum one step of the main loop takes; 0 where there is no such loop."""
    split: int = 1
    """Blocks that share the sum of one tile; of a persistent kernel, its blocks."""
    stages: int = 3
    """Depth of the software pipeline."""
    warps: int = 4
    group: int = 1
    """Tile rows that are walked together, for the L2 cache."""
    layout: Layout = "kn"
    """How the weight is packed: sum axis first, or output channels first."""
    pdl: int = 0
    """Programmatic dependent launch: 0 none, 1 wait and release, 2 prefetch weights before."""
    algorithm: int = 0
    """Of a library's call, the place in the list of algorithms that the library proposes."""

    @property
    def of_library(self) -> bool:
        """Whether a library computes it, so that nothing is generated."""
        return self.template == LIBRARY

    @property
    def rule(self) -> str:
        """What the kernel is known by in profiles."""
        return self.template if self.of_library else RULE

    @property
    def slug(self) -> str:
        """The parameters as part of a kernel's name."""
        pieces = [f"{self.m}x{self.n}x{self.k}", f"s{self.stages}", f"w{self.warps}"]
        pieces += [f"split{self.split}"] if self.split > 1 else []
        pieces += [f"g{self.group}"] if self.group > 1 else []
        return "_".join([*pieces, self.layout, f"p{self.pdl}"])

    @property
    def label(self) -> str:
        """The parameters in a few words, for people."""
        if self.of_library:
            weights = ", weights n x k" if self.layout == "nk" else ""
            return f"{self.template}, algorithm {self.algorithm}{weights}"
        tile = "x".join(str(v) for v in (self.m, self.n, self.k) if v)
        parts = [self.template, tile, f"stages {self.stages}", f"warps {self.warps}"]
        several = "blocks" if self.template == "persistent" else "split"
        parts += [f"{several} {self.split}"] if self.split > 1 else []
        parts += [f"group {self.group}"] if self.group > 1 else []
        parts += ["weights n x k"] if self.layout == "nk" else []
        parts += [f"pdl {self.pdl}"] if self.pdl else []
        return ", ".join(parts)


def to_json(config: Config) -> dict[str, Any]:
    """The configuration as a JSON object."""
    return dict(encode(config))


def from_json(data: dict[str, Any]) -> Config:
    """The configuration of a JSON object."""
    return decode(Config, data)
