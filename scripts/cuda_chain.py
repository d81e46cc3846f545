"""ResNet-50 as a chain of generated kernels in one CUDA graph, launched in several ways.

python scripts/cuda_chain.py [--batch 1] [--winners FILE] [--repeats 60] [-o OUT]

Needs torch, Triton and a GPU. Each layer takes its measured configuration, or the cost model's
first. The chain's result is compared with PyTorch's, layer by layer in float16; then the whole
graph is timed without dependent launch, with it, and with weights prefetched too. Nothing of TVM
is in it: this is the time that a compiled program can come close to.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))
sys.path.insert(0, str(ROOT / "scripts"))

import torch  # noqa: E402
from cuda_measure import _compute, _draw  # noqa: E402

from tvmscope.cuda.config import Config  # noqa: E402
from tvmscope.cuda.cubins.compile_pool import Failure, Job, compile_many  # noqa: E402
from tvmscope.cuda.cubins.compiled_kernel import CompiledKernel  # noqa: E402
from tvmscope.cuda.driver import Kernel  # noqa: E402
from tvmscope.cuda.gpus import gpu_of  # noqa: E402
from tvmscope.cuda.packing import pack_weight  # noqa: E402
from tvmscope.cuda.units import Conv2d, Epilogue, Matmul, Pool, Unit  # noqa: E402
from tvmscope.cuda.winners import Winners, load_winners  # noqa: E402

INPUT = -1


@dataclass(frozen=True)
class Layer:
    """A unit and the layers whose outputs it reads."""

    unit: Unit
    source: int
    residual: int | None = None


def resnet50(batch: int) -> list[Layer]:
    """The layers in order; a block's last convolution adds its shortcut."""
    layers: list[Layer] = []

    def conv(source: int, size: int, c: int, oc: int, r: int, stride: int = 1,
             act: bool = True, residual: int | None = None) -> int:  # fmt: skip
        epilogue = Epilogue(
            bias=True,
            activation="relu" if act else "none",
            residual="none" if residual is None else "before",
        )
        unit = Conv2d(
            dtype="float16", n=batch, h=size, w=size, c=c, oc=oc, r=r, s=r,
            stride=(stride, stride), padding=(r // 2,) * 4, epilogue=epilogue,  # type: ignore[arg-type]
        )  # fmt: skip
        layers.append(Layer(unit, source, residual))
        return len(layers) - 1

    at = conv(INPUT, 224, 8, 64, 7, 2)  # three channels padded to eight
    pool = Pool(
        dtype="float16", n=batch, h=112, w=112, c=64, form="max", r=3, s=3, stride=(2, 2),
        padding=(1, 1, 1, 1),
    )  # fmt: skip
    layers.append(Layer(pool, at))
    at, size, channels = 1, 56, 64
    for blocks, width, first_stride in ((3, 64, 1), (4, 128, 2), (6, 256, 2), (3, 512, 2)):
        for i in range(blocks):
            stride = first_stride if i == 0 else 1
            shortcut = at
            if i == 0:
                shortcut = conv(at, size, channels, 4 * width, 1, stride, act=False)
            inner = conv(at, size, channels, width, 1)
            inner = conv(inner, size, width, width, 3, stride)
            size //= stride
            at = conv(inner, size, width, 4 * width, 1, residual=shortcut)
            channels = 4 * width
    mean = Pool(dtype="float16", n=batch, h=7, w=7, c=2048, form="mean", r=7, s=7)
    layers.append(Layer(mean, at))
    last = Matmul(dtype="float16", m=batch, n=1000, k=2048, epilogue=Epilogue(bias=True))
    layers.append(Layer(last, len(layers) - 1))
    return layers


class Chain:
    """All layers with their memory, ready to be launched one after the other."""

    def __init__(self, layers: Sequence[Layer], kernels: Sequence[CompiledKernel]) -> None:
        self.layers, self.kernels = layers, kernels
        self.tensors = [_draw(layer.unit) for layer in layers]
        for layer, mine in zip(layers, self.tensors, strict=True):
            if layer.residual is not None:  # or sums over blocks would leave float16's range
                mine["weight"] *= 0.3
        self.input = self.tensors[0]["input"]
        self.outputs: list[torch.Tensor] = []
        shared = max(_elements(k, "workspace") for k in kernels)
        self.workspace = torch.empty(shared, dtype=torch.float32, device="cuda")
        self.counters = torch.zeros(65536, dtype=torch.int32, device="cuda")
        scratch = max(_elements(k, "scratch") for k in kernels)
        self.scratch = torch.empty(scratch, dtype=torch.int32, device="cuda")
        self.weights: list[torch.Tensor | None] = []
        self.launches: list[tuple[Kernel, list[int]]] = []
        for i, kernel in enumerate(kernels):
            self._add(i, kernel)

    def _add(self, i: int, kernel: CompiledKernel) -> None:
        layer, mine = self.layers[i], self.tensors[i]
        output = next(t for t in kernel.arguments if t.role == "output")
        self.outputs.append(torch.full(output.shape, float("nan"), dtype=torch.float16).cuda())
        weight = None
        if "weight" in mine:
            packed = pack_weight(layer.unit, kernel.config, mine["weight"].float().cpu().numpy())
            weight = torch.from_numpy(packed).half().cuda()
        self.weights.append(weight)
        values: dict[str, Any] = {
            **mine,
            "weight": weight,
            "input": self._of(layer.source),
            "residual": None if layer.residual is None else self._of(layer.residual),
            "output": self.outputs[i],
            "workspace": self.workspace,
            "counters": self.counters,
            "scratch": self.scratch,
        }
        pointers = [values[t.role].data_ptr() for t in kernel.arguments]
        pointers += [0] * kernel.hidden_pointers
        loaded = Kernel(
            kernel.cubin,
            kernel.name,
            grid=kernel.grid,
            threads=kernel.threads,
            shared_bytes=kernel.shared_bytes,
            dependent=kernel.config.pdl > 0,
        )
        self.launches.append((loaded, pointers))

    def _of(self, layer: int) -> torch.Tensor:
        return self.input if layer == INPUT else self.outputs[layer]

    def run(self) -> None:
        """Queue every layer on torch's current stream."""
        stream = torch.cuda.current_stream().cuda_stream
        for kernel, pointers in self.launches:
            kernel.launch(pointers, stream)

    def errors(self) -> list[float]:
        """Each layer's largest error over its largest value, given the inputs that it had."""
        out = []
        for layer, mine, got in zip(self.layers, self.tensors, self.outputs, strict=True):
            values = {k: v.float() for k, v in mine.items()}
            values["input"] = self._of(layer.source).float()
            if layer.residual is not None:
                values["residual"] = self._of(layer.residual).float()
            wanted = _compute(layer.unit, values)
            difference = (got.float().reshape(wanted.shape) - wanted).abs().max()
            error = float(difference / wanted.abs().max())
            out.append(math.inf if math.isnan(error) else error)
        return out


def _elements(kernel: CompiledKernel, role: str) -> int:
    return max((t.elements for t in kernel.arguments if t.role == role), default=1)


def build(layers: Sequence[Layer], winners: Winners, pdl: int | None) -> list[CompiledKernel]:
    """The kernels of all layers; `pdl` None leaves the launch to each configuration."""
    gpu = gpu_of("sm_{}{}".format(*torch.cuda.get_device_capability()))
    chosen: dict[Unit, Config] = {}
    for layer in layers:
        if layer.unit not in chosen:
            config = winners.choose(layer.unit, gpu)
            chosen[layer.unit] = config if pdl is None else replace(config, pdl=pdl)
    jobs = [Job(unit=u, config=c, arch=gpu.arch) for u, c in chosen.items()]
    built: dict[Unit, CompiledKernel] = {}
    for job, outcome in zip(jobs, compile_many(jobs), strict=True):
        if isinstance(outcome, Failure):
            sys.exit(f"{job.unit.label}: {outcome.reason}")
        built[job.unit] = outcome
    return [built[layer.unit] for layer in layers]


def graph_us(chain: Chain, repeats: int) -> list[float]:
    """Microseconds of the whole graph, one value per run."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        chain.run()
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        graph.capture_begin()
        chain.run()
        graph.capture_end()
        for _ in range(3):
            graph.replay()
        events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(repeats)]
        for before, after in events:
            before.record()
            graph.replay()
            after.record()
        stream.synchronize()
    return [a.elapsed_time(b) * 1e3 for a, b in events]


def main() -> None:
    """Build, check, time."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--winners", type=Path)
    parser.add_argument("--repeats", type=int, default=60)
    parser.add_argument("-o", "--output", type=Path, default=Path(os.environ.get("OUT", ".")))
    arguments = parser.parse_args()
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    winners = load_winners(arguments.winners) if arguments.winners else Winners()
    layers = resnet50(arguments.batch)
    rows: list[dict[str, Any]] = []
    first: torch.Tensor | None = None
    for name, pdl in (("plain", 0), ("dependent", 1), ("prefetched", 2), ("as recorded", None)):
        chain = Chain(layers, build(layers, winners, pdl))
        chain.run()
        torch.cuda.synchronize()
        worst = max(chain.errors())
        values = graph_us(chain, arguments.repeats)
        first = chain.outputs[-1].clone() if first is None else first
        again = torch.equal(chain.outputs[-1], first)
        rows.append({"launch": name, "worst_error": worst, "same_bits": again, "us": values})
        print(
            f"{name}: {statistics.median(values):.1f} us for {len(layers)} kernels,"
            f" worst error {worst:.1e}, same bits as the first: {again}",
            flush=True,
        )
    file = arguments.output / f"chain-b{arguments.batch}.json"
    file.write_text(json.dumps({"batch": arguments.batch, "rows": rows}))


if __name__ == "__main__":
    main()
