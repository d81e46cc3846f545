"""Matrix products in float16 on a GPU: PyTorch's (cuBLAS), generated kernels, cuBLASLt, the choice.

python benchmarks/gemm.py [-o FOLDER] [--shapes 4096x4096x4096,...] [--best 12] [--dry-run]

Needs torch, Triton and a GPU; --dry-run needs none of them and lists the candidates. All candidates
of a shape are compiled in parallel, checked against a product in float32 (their output is NaN
before), and timed shortly. The three fastest generated ones and calls of cuBLASLt are timed again
in turns, which decides what tvmscope would choose, by the rule of its records. The fastest of each
kind are then timed in turns with PyTorch, in CUDA graphs of several launches. Ratios are PyTorch's
time (the faster of the right side's two layouts) over the candidate's, with a 95 % interval;
operands stay where they are, so that small ones lie in the L2 cache for all alike.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))
sys.path.insert(0, str(ROOT / "scripts"))

from tvmscope.core.stats import ratio_interval  # noqa: E402
from tvmscope.cuda import config as configs  # noqa: E402
from tvmscope.cuda.config import Config, Layout  # noqa: E402
from tvmscope.cuda.cost import estimates  # noqa: E402
from tvmscope.cuda.cubins.compile_pool import Failure, Job, compile_many  # noqa: E402
from tvmscope.cuda.cubins.compiled_kernel import CompiledKernel  # noqa: E402
from tvmscope.cuda.gpus import Gpu, gpu_of  # noqa: E402
from tvmscope.cuda.library.call import LibraryCall, call_of  # noqa: E402
from tvmscope.cuda.library.call import configs as library_configs  # noqa: E402
from tvmscope.cuda.library.cublaslt import PROPOSALS  # noqa: E402
from tvmscope.cuda.shortlist import best  # noqa: E402
from tvmscope.cuda.units import Matmul  # noqa: E402
from tvmscope.cuda.winners import distil  # noqa: E402
from tvmscope.errors import TvmscopeError, one_line  # noqa: E402

SHAPES = "1024x1024x1024,4096x4096x4096,8192x8192x8192,512x4096x1024"
TOLERANCE = 3e-3
"""Largest error over the largest value."""
GRAPH_US = 2000.0
"""A graph has as many launches as take so long, at least 2 and at most 20."""
TRIALS, FINALISTS, FINAL_ROUNDS, ROUNDS = 5, 3, 15, 30
PEERS = ("torch a @ b", "torch a @ b.T")


def main() -> None:
    """Compile, check, time, show."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("-o", "--output", type=Path, default=Path(os.environ.get("OUT", ".")))
    parser.add_argument("--shapes", default=SHAPES, help="M x N x K, with commas between")
    parser.add_argument("--best", type=int, default=12, help="generated candidates of each kind")
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--workers", type=int, default=None)
    parser.add_argument("--dry-run", action="store_true", help="list the candidates")
    given = parser.parse_args()
    gpu = gpu_of(given.arch)
    units = [unit_of(text) for text in given.shapes.split(",")]
    wanted = {unit: candidates(unit, gpu, given.best) for unit in units}
    if given.dry_run:
        dry_run(wanted)
        return
    started = time.monotonic()
    kernels = compiled(wanted, given.arch, given.workers)
    print(f"compiled after {time.monotonic() - started:.0f} s", flush=True)
    rows = [measured(unit, kernels[unit]) for unit in units]
    seconds = time.monotonic() - started
    print(table(rows))
    print(f"{seconds:.0f} s in all")
    given.output.mkdir(parents=True, exist_ok=True)
    file = given.output / "gemm.json"
    file.write_text(json.dumps({"schema_version": 1, "seconds": seconds, "rows": rows}, indent=1))


def unit_of(text: str) -> Matmul:
    """The product of `512x4096x1024`."""
    m, n, k = (int(part) for part in text.split("x"))
    return Matmul(dtype="float16", m=m, n=n, k=k)


def candidates(unit: Matmul, gpu: Gpu, count: int) -> list[Config]:
    """Generated ones: the cost model's best, and as many persistent ones in both layouts."""
    ranked = [e.config for e in best(unit, gpu, count)]
    persistent = sorted(
        (e for e in estimates(unit, gpu) if e.config.template == "persistent"), key=lambda e: e.us
    )
    layouts: tuple[Layout, ...] = ("kn", "nk")
    ranked += [replace(e.config, layout=way) for e in persistent[:count] for way in layouts]
    return list(dict.fromkeys(ranked))


def dry_run(wanted: dict[Matmul, list[Config]]) -> None:
    """What would be compiled and called."""
    for unit, chosen in wanted.items():
        calls = list(library_configs(unit, 2 * PROPOSALS))
        print(f"{unit.label}: {len(chosen)} generated, {len(calls)} calls of cuBLASLt")
        for config in (*chosen, *calls):
            print(f"  {config.label}")


def compiled(
    wanted: dict[Matmul, list[Config]], arch: str, workers: int | None
) -> dict[Matmul, list[CompiledKernel]]:
    """The kernels of all units, in parallel; what cannot be compiled is named."""
    jobs = [Job(unit=u, config=c, arch=arch) for u, chosen in wanted.items() for c in chosen]
    out: dict[Matmul, list[CompiledKernel]] = {unit: [] for unit in wanted}
    for job, outcome in zip(jobs, compile_many(jobs, workers=workers), strict=True):
        if isinstance(outcome, Failure):
            print(f"{job.unit.label}: {job.config.label}: {outcome.reason}")
        elif isinstance(job.unit, Matmul):
            out[job.unit].append(outcome)
    return out


@dataclass
class Lane:
    """A way to compute the product: one launch, and a graph of many."""

    name: str
    launch: Callable[[], Any]
    launches: int = 0
    graph: Any = None

    def capture(self, estimate_us: float) -> None:
        """Record the graph, on the current stream."""
        import torch

        self.launches = int(min(20, max(2, GRAPH_US // estimate_us)))
        self.graph = torch.cuda.CUDAGraph()
        self.graph.capture_begin()
        for _ in range(self.launches):
            self.launch()
        self.graph.capture_end()
        self.graph.replay()

    def time_us(self) -> float:
        """One run of the graph, per launch."""
        import torch

        before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        before.record()
        self.graph.replay()
        after.record()
        after.synchronize()
        return float(before.elapsed_time(after)) * 1e3 / self.launches


class Product:
    """A unit's operands on the GPU, its reference, and the ways to compute it."""

    def __init__(self, unit: Matmul) -> None:
        import torch
        from cuda_measure import _draw, _reference

        self.unit = unit
        drawn = _draw(unit)
        self.input = drawn["input"].view(unit.m, unit.k)
        right = drawn["weight"]
        self.right = {"kn": right, "nk": right.t().contiguous()}
        self.reference = _reference(unit, drawn)
        self.output = torch.empty(unit.m, unit.n, dtype=torch.float16, device="cuda")
        self.floor_us = unit.flops / 1e9  # at 1,000 TFLOP/s

    def peers(self) -> list[Lane]:
        """PyTorch's product, with the right side stored either way."""
        import torch

        ways = (self.right["kn"], self.right["nk"].t())
        out = self.output
        return [
            Lane(name, partial(torch.matmul, self.input, b, out=out))
            for name, b in zip(PEERS, ways, strict=True)
        ]

    def lane(self, kernel: CompiledKernel | LibraryCall) -> Lane:
        """A generated kernel, or a library's call."""
        import torch
        from cuda_measure import _own

        from tvmscope.cuda.binding import bind
        from tvmscope.cuda.kernel_bench import loaded

        launcher, arguments = loaded(kernel), bind(self.unit, kernel.config).arguments
        values = {
            "input": self.input,
            "weight": self.right[kernel.config.layout],
            "output": self.output,
        }
        values |= {t.role: _own(t) for t in arguments if t.role not in values}
        pointers = [values[t.role].data_ptr() for t in arguments]
        pointers += [0] * kernel.hidden_pointers

        def launch(held: Any = values) -> None:  # its memory lives as long as the lane
            launcher.launch(pointers, torch.cuda.current_stream().cuda_stream)

        return Lane(kernel.config.label, launch)

    def error(self, lane: Lane) -> float | None:
        """One launch into poisoned memory; None where a value is NaN or was not written."""
        import torch
        from cuda_measure import _error

        self.output.fill_(float("nan"))
        lane.launch()
        torch.cuda.synchronize()
        return _error(self.output, self.reference)

    def tried(self, kernel: CompiledKernel | LibraryCall) -> tuple[Lane | None, dict[str, Any]]:
        """A candidate: whether it is right, and its time."""
        record = {
            "unit": self.unit.to_json(),
            "config": configs.to_json(kernel.config),
            "label": kernel.config.label,
            "correct": False,
        }
        try:
            lane = self.lane(kernel)
            error = self.error(lane)
            if error is None or error > TOLERANCE:
                return None, record | {"error": error, "reason": "wrong"}
            lane.capture(self.floor_us)
            times = [lane.time_us() for _ in range(TRIALS)]
        except TvmscopeError as e:  # refused by the driver or the library
            return None, record | {"reason": one_line(e)}
        return lane, record | {"error": error, "correct": True, **_timed(times)}


def measured(unit: Matmul, kernels: Sequence[CompiledKernel]) -> dict[str, Any]:
    """A row of the table."""
    import torch

    name = torch.cuda.get_device_name()
    calls = [call_of(unit, config) for config in library_configs(unit, 2 * PROPOSALS)]
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        product = Product(unit)
        tried = [product.tried(kernel) for kernel in (*kernels, *calls)]
        records = [record | {"gpu": name} for _, record in tried]
        finals = [finalists(part) for part in (tried[: len(kernels)], tried[len(kernels) :])]
        again = in_turns([lane for part in finals for lane, _ in part], FINAL_ROUNDS)
        finals = [[(x, r | _timed(again[x.name])) for x, r in part] for part in finals]
        generated, called = (part[0][0] if (part := finalists(p)) else None for p in finals)
        decided = [record | {"gpu": name} for part in finals for _, record in part]
        taken = called if takes_library(decided) else generated
        lanes = product.peers()
        for lane in lanes:
            error = product.error(lane)
            if error is None or error > TOLERANCE:
                raise SystemExit(f"{unit.label}: PyTorch's own product is wrong: {error}")
            lane.capture(product.floor_us)
        lanes += [lane for lane in (generated, called) if lane is not None]
        times = in_turns(lanes, ROUNDS)
    wrong = [r for r in records if not r["correct"]]
    row = {
        "label": unit.label,
        "flops": unit.flops,
        "gpu": name,
        "torch": torch.__version__,
        "generated": generated and generated.name,
        "library": called and called.name,
        "chosen": taken and taken.name,
        "us": times,
        "finalists": decided,
        "candidates": records,
    }
    print(f"{unit.label}: {len(records)} candidates, {len(wrong)} wrong or refused", flush=True)
    for record in wrong[:4]:
        print(f"  {record['label']}: {record.get('error')} {record['reason']}", flush=True)
    return row


def finalists(
    tried: Sequence[tuple[Lane | None, dict[str, Any]]],
) -> list[tuple[Lane, dict[str, Any]]]:
    """The right candidates with the least medians, the fastest first."""
    right = [(lane, record) for lane, record in tried if lane is not None]
    return sorted(right, key=lambda pair: statistics.median(pair[1]["hot_us"]))[:FINALISTS]


def _timed(times: list[float]) -> dict[str, Any]:
    return {"cold_us": times, "hot_us": times}


def takes_library(records: Sequence[dict[str, Any]]) -> bool:
    """Whether tvmscope takes the library's call, with such records and where it may."""
    return any(record.call is not None for record in distil(records).by_unit.values())


def in_turns(lanes: Sequence[Lane], rounds: int) -> dict[str, list[float]]:
    """Microseconds of each lane, by round; each round has another order."""
    order, times = list(lanes), {lane.name: list[float]() for lane in lanes}
    shuffled = random.Random(0)
    for _ in range(rounds):
        shuffled.shuffle(order)
        for lane in order:
            times[lane.name].append(lane.time_us())
    return times


def table(rows: Sequence[dict[str, Any]]) -> str:
    """TFLOP/s of PyTorch, and the ratios to it."""
    lines = ["| product | PyTorch | generated | cuBLASLt | chosen |", "|---|---|---|---|---|"]
    for row in rows:
        peer = min((p for p in PEERS if p in row["us"]), key=lambda p: _us(row, p))
        cells = [f"{_us(row, peer):.1f} us, {row['flops'] / _us(row, peer) / 1e6:.0f} TFLOP/s"]
        for kind in ("generated", "library", "chosen"):
            cells.append(_ratio(row, peer, row[kind]))
        lines.append(f"| {row['label']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _us(row: dict[str, Any], name: str) -> float:
    return statistics.median(row["us"][name])


def _ratio(row: dict[str, Any], peer: str, name: str | None) -> str:
    if name is None:
        return "none"
    found = ratio_interval(
        tuple((us,) for us in row["us"][peer]), tuple((us,) for us in row["us"][name])
    )
    limits = "" if found.lo is None else f" [{found.lo:.2f}, {found.hi:.2f}]"
    return f"{found.ratio:.2f}x{limits} {name}"


if __name__ == "__main__":
    main()
