"""The least time of ResNet-50 at batch 1 on a GPU: its launches without work, its work without
launches, and what barriers inside one kernel would cost instead.

python scripts/cuda_floor.py [--batch 1] [--winners FILE] [--repeats 60] [-o OUT]

Needs torch, Triton, nvcc and a GPU (sm_90). The chain of `cuda_chain.py` runs in one CUDA graph as
it is, and with EXIT as each kernel's first instruction, which leaves grids, threads, registers and
shared memory as they are; each kernel is then timed alone in a graph of many. A persistent kernel
with a block for each multiprocessor waits for all others, or for those of its cluster, a thousand
times.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))
sys.path.insert(0, str(ROOT / "scripts"))

import torch  # noqa: E402
from cuda_chain import Chain, build, graph_us, resnet50  # noqa: E402

from tvmscope.cuda.cubins.compiled_kernel import CompiledKernel  # noqa: E402
from tvmscope.cuda.cubins.cubin import sections  # noqa: E402
from tvmscope.cuda.driver import Kernel  # noqa: E402
from tvmscope.cuda.winners import Winners, load_winners  # noqa: E402

EXIT = (0x000FEA0003800000_000000000000794D).to_bytes(16, "little")
"""The instruction of sm_80 to sm_90."""
ROUNDS = 1000
CLUSTER = 8
BARRIERS = r"""
#include <cooperative_groups.h>
extern "C" __global__ void grid_wait(unsigned *counter, unsigned *rounds) {
  for (unsigned i = 1; i <= *rounds; ++i) {
    __syncthreads();
    if (threadIdx.x == 0) {
      __threadfence();
      atomicAdd(counter, 1u);
      unsigned seen;
      do asm volatile("ld.acquire.gpu.u32 %0, [%1];" : "=r"(seen) : "l"(counter) : "memory");
      while (seen < i * gridDim.x);
    }
    __syncthreads();
  }
}
extern "C" __global__ void __cluster_dims__(8, 1, 1) cluster_wait(unsigned *, unsigned *rounds) {
  auto all = cooperative_groups::this_cluster();
  for (unsigned i = 1; i <= *rounds; ++i) all.sync();
}
"""


def main() -> None:
    """Build, time, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--winners", type=Path)
    parser.add_argument("--repeats", type=int, default=60)
    parser.add_argument("-o", "--output", type=Path, default=Path(os.environ.get("OUT", ".")))
    arguments = parser.parse_args()
    winners = load_winners(arguments.winners) if arguments.winners else Winners()
    layers = resnet50(arguments.batch)
    found: dict[str, Any] = {"gpu": torch.cuda.get_device_name(), "launches": len(layers)}
    for name, pdl in (("plain", 0), ("as recorded", None)):
        kernels = build(layers, winners, pdl)
        chain = Chain(layers, kernels)
        found[f"{name}, us"] = statistics.median(graph_us(chain, arguments.repeats))
        silent = Chain(layers, [without_work(kernel) for kernel in kernels])
        found[f"{name}, without work, us"] = statistics.median(graph_us(silent, arguments.repeats))
        if pdl == 0:
            alone = kernel_times(chain)
            found["kernels alone, us"] = alone
            found["sum of kernels alone, us"] = sum(alone)
            nothing = kernel_times(silent)
            found["sum of kernels without work, us"] = sum(nothing)
    found["weights, bytes"] = sum(w.nbytes for w in chain.weights if w is not None)
    found["flops"] = sum(layer.unit.flops for layer in layers)
    found |= barriers()
    for key, value in found.items():
        if not isinstance(value, list):
            print(f"{key}: {value:.2f}" if isinstance(value, float) else f"{key}: {value}")
    arguments.output.mkdir(parents=True, exist_ok=True)
    (arguments.output / f"floor-b{arguments.batch}.json").write_text(json.dumps(found, indent=1))


def without_work(kernel: CompiledKernel) -> CompiledKernel:
    """The kernel with EXIT as its first instruction."""
    code = bytearray(kernel.cubin)
    (text,) = (s for s in sections(kernel.cubin) if s.name == f".text.{kernel.name}")
    code[text.offset : text.offset + len(EXIT)] = EXIT
    return replace(kernel, cubin=bytes(code))


def kernel_times(chain: Chain, launches: int = 20, repeats: int = 15) -> list[float]:
    """Microseconds of each kernel, in a graph of so many launches of it."""
    times = []
    for kernel, pointers in chain.launches:

        def run(kernel: Kernel = kernel, pointers: Sequence[int] = pointers) -> None:
            for _ in range(launches):
                kernel.launch(pointers, torch.cuda.current_stream().cuda_stream)

        times.append(captured_us(run, repeats) / launches)
    return times


def captured_us(run: Callable[[], None], repeats: int) -> float:
    """The median of a recorded graph, in microseconds."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        run()
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        graph.capture_begin()
        run()
        graph.capture_end()
        graph.replay()
        values = []
        for _ in range(repeats):
            before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            before.record()
            graph.replay()
            after.record()
            after.synchronize()
            values.append(before.elapsed_time(after) * 1e3)
    return statistics.median(values)


def barriers() -> dict[str, float]:
    """Microseconds of one barrier among all blocks, and among those of a cluster."""
    with tempfile.TemporaryDirectory() as folder:
        source, code = Path(folder) / "wait.cu", Path(folder) / "wait.cubin"
        source.write_text(BARRIERS)
        command = ["nvcc", "-arch=sm_90", "-std=c++17", "-cubin", "-o", str(code), str(source)]
        subprocess.run(command, check=True)
        cubin = code.read_bytes()
    blocks = torch.cuda.get_device_properties(0).multi_processor_count
    counter = torch.zeros(1, dtype=torch.int32, device="cuda")
    rounds = torch.tensor([ROUNDS], dtype=torch.int32, device="cuda")
    out = {}
    for name, grid in (("grid_wait", blocks), ("cluster_wait", blocks // CLUSTER * CLUSTER)):
        kernel = Kernel(cubin, name, grid=(grid, 1, 1), threads=128, shared_bytes=0)
        times = []
        for _ in range(7):
            counter.zero_()
            before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            before.record()
            kernel.launch(
                [counter.data_ptr(), rounds.data_ptr()], torch.cuda.current_stream().cuda_stream
            )
            after.record()
            after.synchronize()
            times.append(before.elapsed_time(after) * 1e3 / ROUNDS)
        out[f"{name}, us"] = statistics.median(times)
    return out


if __name__ == "__main__":
    main()
