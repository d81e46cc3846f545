"""What a model costs that is half in its framework, against the same model wholly in it.

    python benchmarks/half_fallback.py [--duration 5s] [--threads N]

`fnet` mixes by Fourier transforms, which PyTorch computes, between compiled layers; `deform` has
deformable convolutions, which ONNX Runtime computes, between compiled ones. Both rows are verified
and timed in turns. More than 1.10x is over the limit we set: the command then ends with 1.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import tvmscope
from tvmscope.core.artifact import FALLBACK
from tvmscope.core.session import Session
from tvmscope.core.stats import median_s
from tvmscope.parsing import parse_duration_s
from tvmscope.quantities import format_s

LIMIT = 1.10
FNET = """
import torch

class Block(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.first, self.second = torch.nn.LayerNorm(size), torch.nn.LayerNorm(size)
        self.wide, self.narrow = torch.nn.Linear(size, size), torch.nn.Linear(size, size)

    def forward(self, x):
        x = self.first(x + torch.fft.fft2(x).real)
        return self.second(x + self.narrow(torch.nn.functional.gelu(self.wide(x))))

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.Sequential(*(Block(384) for _ in range(4)))

    def forward(self, x):
        return self.blocks(x)

def get_inputs():
    return [torch.randn(1, 256, 384)]
"""


def deform(channels: int = 32, side: int = 28, blocks: int = 3) -> onnx.ModelProto:
    """Convolutions that give offsets, deformable ones that take them, and plain ones."""
    draws = np.random.default_rng(0)
    weights, nodes, before = [], [], "x"

    def weight(name: str, outputs: int, scale: float) -> str:
        shape = (outputs, channels, 3, 3)
        values = draws.standard_normal(shape, np.float32) * np.float32(scale)
        weights.append(numpy_helper.from_array(values, name))
        return name

    scale = (9 * channels) ** -0.5
    for n in range(blocks):
        offsets = weight(f"offsets{n}", 18, 0.1 * scale)
        bent, plain = weight(f"bent{n}", channels, scale), weight(f"plain{n}", channels, scale)
        same = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
        nodes.append(helper.make_node("Conv", [before, offsets], [f"o{n}"], **same))
        nodes.append(helper.make_node("DeformConv", [before, bent, f"o{n}"], [f"d{n}"], **same))
        nodes.append(helper.make_node("Relu", [f"d{n}"], [f"r{n}"]))
        before = f"r{n}"
        for step in range(4):
            nodes.append(helper.make_node("Conv", [before, plain], [f"c{n}{step}"], **same))
            nodes.append(helper.make_node("Relu", [f"c{n}{step}"], [f"p{n}{step}"]))
            before = f"p{n}{step}"
    shape = [1, channels, side, side]
    graph = helper.make_graph(
        nodes,
        "deform",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(before, TensorProto.FLOAT, shape)],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=10)


def row(name: str, session: Session, framework: str) -> float:
    """Print one model's line; returns how many times the framework's own time it takes."""
    times = {
        r.task.variant.backend: median_s(r.measurement)
        for r in session.results
        if r.status == "ok" and r.measurement is not None
    }
    if not {"tvmscope", framework} <= times.keys():
        sys.exit(f"{name}: {[(r.status, str(r.reason)) for r in session.results]}")
    found = next(c for c in session.comparisons if c.against.name == framework)
    profile = next(p for p in session.profiles if p.key.name == "tvmscope")
    outside_s = sum(k.total_s for k in profile.kernels if k.name.startswith(FALLBACK))
    low, high = found.ci95 or (found.speedup, found.speedup)
    print(
        f"| {name} | {framework} | {format_s(times['tvmscope'])} | {format_s(times[framework])} "
        f"| {1 / found.speedup:.2f}x [{1 / high:.2f}, {1 / low:.2f}] "
        f"| {outside_s / profile.total_s:.0%} |",
        flush=True,
    )
    return 1 / found.speedup


def main() -> None:
    """Measure both models, print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--duration", default="5s")
    parser.add_argument("--threads", type=int)
    given = parser.parse_args()
    print("| model | framework | tvmscope | framework alone | ratio | in the framework |")
    print("|---|---|---|---|---|---|")
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "fnet.py").write_text(FNET)
        onnx.save(deform(), folder / "deform.onnx")
        ratios = [
            row(
                file.partition(".")[0],
                tvmscope.analyze(
                    str(folder / file),
                    target="cpu",
                    backends=("tvmscope", framework),
                    duration_s=parse_duration_s(given.duration),
                    threads=given.threads,
                    db="none",
                    offline=True,
                    output=folder / framework,
                ),
                framework,
            )
            for file, framework in (("fnet.py", "torch"), ("deform.onnx", "onnxruntime"))
        ]
    if max(ratios) > LIMIT:
        sys.exit(1)


if __name__ == "__main__":
    main()
