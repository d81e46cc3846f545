"""How a unit is computed: a template and its parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from tvmscope.storage.codec import decode, encode

Template = Literal[
    "conv2d", "matmul", "persistent", "matvec", "depthwise", "attention", "softmax", "norm",
    "group_norm", "pool", "mean", "cublaslt", "cudnn",
]  # fmt: skip
LIBRARIES: tuple[Template, ...] = ("cublaslt", "cudnn")
MATRIX: tuple[Template, ...] = ("conv2d", "matmul", "persistent", "attention")
"""Generated kernels that multiply matrices: where the type allows it, on tensor cores."""
"""The template names of calls of NVIDIA's libraries."""
VERSIONS: dict[Template, int] = {
    "conv2d": 2, "matmul": 2, "persistent": 1, "matvec": 1, "depthwise": 1, "attention": 2,
    "softmax": 1, "norm": 1, "group_norm": 1, "pool": 1, "mean": 1, "cublaslt": 1, "cudnn": 1,
}  # fmt: skip
"""Raise a template's version with every change of what its kernels do: its measured winners must
then be measured again (`cuda_kernels.py prepare --outdated`), those of other templates stay."""
Layout = Literal["kn", "nk"]
RULE = "triton"
"""The name of generated kernels in profiles and tuning records."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """A template's parameters; the template defines what `m`, `n` and `k` tile."""

    template: Template
    m: int
    """Rows of a tile: pixels, matrix rows, queries."""
    n: int
    """Columns of a tile: output channels, matrix columns, keys."""
    k: int = 0
    """The length of the sum that one step of the main loop computes; 0 if there is no such loop."""
    split: int = 1
    """Blocks that share the sum of one tile; for a persistent kernel, its number of blocks."""
    stages: int = 3
    """The depth of the software pipeline."""
    warps: int = 4
    group: int = 1
    """Tile rows that are processed together, for the L2 cache."""
    layout: Layout = "kn"
    """The layout of the packed weight: sum axis first, or output channels first."""
    pdl: int = 0
    """Programmatic dependent launch: 0 none, 1 wait and release, 2 prefetch weights before."""
    algorithm: int = 0
    """For a library's call: the index in the list of algorithms that the library proposes."""

    @property
    def of_library(self) -> bool:
        """Whether a library computes it, so that no kernel is generated."""
        return self.template in LIBRARIES

    def is_allowed(self, library: bool | tuple[str, ...]) -> bool:
        """Whether a model may use it, if `library` allows all libraries, none, or these."""
        if not self.of_library:
            return True
        return library if isinstance(library, bool) else self.template in library

    @property
    def rule(self) -> str:
        """The kernel's name in profiles."""
        return self.template if self.of_library else RULE

    @property
    def slug(self) -> str:
        """The parameters as a part of a kernel's name."""
        pieces = [f"{self.m}x{self.n}x{self.k}", f"s{self.stages}", f"w{self.warps}"]
        pieces += [f"split{self.split}"] if self.split > 1 else []
        pieces += [f"g{self.group}"] if self.group > 1 else []
        return "_".join([*pieces, self.layout, f"p{self.pdl}"])

    @property
    def label(self) -> str:
        """A short description of the parameters, for people."""
        if self.of_library:
            free = self.template == "cublaslt"  # cuDNN takes one layout
            weights = ", weights n x k" if free and self.layout == "nk" else ""
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
    """Return the configuration as a JSON object."""
    return dict(encode(config))


def from_json(data: dict[str, Any]) -> Config:
    """Read the configuration from a JSON object."""
    return decode(Config, data)
