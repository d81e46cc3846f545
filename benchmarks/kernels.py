"""Single kernels, ours beside oneDNN and MKL through PyTorch: GFLOP/s and the share of the roof.

python benchmarks/kernels.py [--duration 0.6] [--threads N] [--only 1x1]

Both sides get their data and weights in the layout they like best, so that what is timed is the
kernel with its bias alone. Weights and data are warm. Work is counted as a direct convolution does
it: Winograd may pass the roof.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from tvmscope.core.measurement import Measurement
from tvmscope.core.options import MeasureOptions
from tvmscope.core.stats import geometric_mean, median_s, ratio_interval
from tvmscope.machine import cpu_features
from tvmscope.measure.interleave import Lane, interleave
from tvmscope.measure.remote import here
from tvmscope.measure.worker import Worker

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Convolution:
    """A square image and kernel, padded so that stride 1 keeps the size."""

    inputs: int
    size: int
    outputs: int
    kernel: int
    stride: int = 1
    depthwise: bool = False

    @property
    def name(self) -> str:
        kind = "depthwise " if self.depthwise else ""
        stride = f" /{self.stride}" if self.stride > 1 else ""
        k = f"{self.kernel}x{self.kernel}"
        return f"{kind}{k} {self.inputs}->{self.outputs} @ {self.size}{stride}"

    @property
    def padding(self) -> int:
        return self.kernel // 2

    @property
    def output_size(self) -> int:
        return (self.size + 2 * self.padding - self.kernel) // self.stride + 1

    @property
    def flops(self) -> float:
        inputs = 1 if self.depthwise else self.inputs
        return 2.0 * inputs * self.kernel**2 * self.outputs * self.output_size**2

    def arrays(self) -> tuple[Array, Array, Array]:
        rng = np.random.default_rng(0)
        inputs = 1 if self.depthwise else self.inputs
        return (
            rng.standard_normal((1, self.inputs, self.size, self.size), dtype=np.float32),
            rng.standard_normal((self.outputs, inputs, self.kernel, self.kernel), dtype=np.float32),
            rng.standard_normal(self.outputs, dtype=np.float32),
        )


@dataclass(frozen=True)
class Matmul:
    """(rows, depth) times constant (depth, columns)."""

    rows: int
    depth: int
    columns: int

    @property
    def name(self) -> str:
        return f"matmul {self.rows} x {self.depth} x {self.columns}"

    @property
    def flops(self) -> float:
        return 2.0 * self.rows * self.depth * self.columns

    def arrays(self) -> tuple[Array, Array, Array]:
        rng = np.random.default_rng(0)
        return (
            rng.standard_normal((self.rows, self.depth), dtype=np.float32),
            rng.standard_normal((self.depth, self.columns), dtype=np.float32),
            rng.standard_normal(self.columns, dtype=np.float32),
        )


CASES: tuple[Convolution | Matmul, ...] = (
    Convolution(3, 224, 64, 7, 2),  # ResNet-50
    Convolution(64, 56, 64, 1),
    Convolution(64, 56, 64, 3),
    Convolution(64, 56, 256, 1),
    Convolution(256, 56, 64, 1),
    Convolution(256, 56, 128, 1),
    Convolution(128, 56, 128, 3, 2),
    Convolution(128, 28, 128, 3),
    Convolution(128, 28, 512, 1),
    Convolution(512, 28, 128, 1),
    Convolution(512, 28, 256, 1),
    Convolution(256, 28, 256, 3, 2),
    Convolution(256, 14, 256, 3),
    Convolution(256, 14, 1024, 1),
    Convolution(1024, 14, 256, 1),
    Convolution(512, 14, 512, 3, 2),
    Convolution(512, 7, 512, 3),
    Convolution(512, 7, 2048, 1),
    Convolution(2048, 7, 512, 1),
    Convolution(32, 208, 64, 3),  # YOLOv3 at 416
    Convolution(64, 208, 32, 1),
    Convolution(512, 13, 1024, 3),
    Convolution(16, 112, 96, 1),  # MobileNet-v2, EfficientNet-Lite0
    Convolution(24, 56, 144, 1),
    Convolution(96, 112, 96, 3, 2, depthwise=True),
    Convolution(144, 56, 144, 3, depthwise=True),
    Convolution(576, 14, 576, 3, depthwise=True),
    Matmul(128, 384, 1536),  # MiniLM, ViT-B/16
    Matmul(197, 768, 3072),
    Matmul(197, 3072, 768),
)


class Kernel:
    """One of our kernels, called through TVM."""

    def __init__(self, function: Any, arrays: list[Array], rule: str) -> None:
        import tvm
        from tvm.ir import IRModule

        from tvmscope.compiler import targets
        from tvmscope.compiler.schedules import cpu
        from tvmscope.compiler.schedules.apply import apply_schedules

        target = targets.host_target()
        tvm_target = tvm.target.Target(targets.to_tvm(target))
        module = IRModule({"main": function.with_attr("global_symbol", "main")})
        with tvm_target:
            module = apply_schedules(cpu.RULES, target, remarks := [])(module)
        taken = str(module["main"].attrs["tvmscope.rule"])
        if taken != rule:
            why = "; ".join(remarks)
            raise RuntimeError(f"the kernel was taken by rule {taken}, not by {rule}: {why}")
        self._run = tvm.compile(module, target=tvm_target)["main"]
        self._args = [tvm.runtime.tensor(a) for a in arrays]
        self.settings = {"rule": rule}

    def run(self) -> None:
        self._run(*self._args)

    def result(self) -> Array:
        self.run()
        return np.asarray(self._args[-1].numpy())


RULES = {"conv2d": "conv2d", "depthwise_conv2d": "depthwise", "winograd_conv2d": "winograd"}
"""Which rule must take the kernel that the compiler chooses for a convolution."""


class OurConvolution(Kernel):
    """The compiler's own choice of kernel; data, weights and result in channel blocks."""

    def __init__(self, case: Convolution) -> None:
        from tvm import te

        from tvmscope.compiler import targets
        from tvmscope.compiler.kernels import blocked, convolutions
        from tvmscope.compiler.tunable.knobs import Knobs

        data, weight, bias = case.arrays()
        is_blocked, size = case.inputs > 3, case.output_size
        blocks = _blocked(data) if is_blocked else data
        pad = (case.padding,) * 4
        asked = convolutions.Convolution(
            kernel=weight,
            window=blocked.Window((case.stride, case.stride), pad, (1, 1)),
            groups=case.inputs if case.depthwise else 1,
            given=data.shape,
            result=(1, case.outputs, size, size),
            dtype="float32",
        )
        host = targets.host_target()
        kernel = convolutions.choose(asked, host, is_blocked, winograd=True, knobs=Knobs())
        rule, packed = RULES[kernel.name], kernel.weight
        x, w = te.placeholder(blocks.shape, name="x"), te.placeholder(packed.shape, name="w")
        blocked_bias = _blocked(bias.reshape(1, -1, 1, 1))
        b = te.placeholder(blocked_bias.shape, name="b")
        y = kernel.compute(x, w)
        out = te.compute(y.shape, lambda n, o, i, j, c: y(n, o, i, j, c) + b(n, o, 0, 0, c))
        shape = tuple(int(d) for d in out.shape)
        arrays = [blocks, packed, blocked_bias, np.zeros(shape, np.float32)]
        super().__init__(te.create_prim_func([x, w, b, out]), arrays, rule)
        self.outputs_ = case.outputs

    def outputs(self) -> dict[str, Array]:
        n, blocks, h, w, lanes = (found := self.result()).shape
        plain = found.transpose(0, 1, 4, 2, 3).reshape(n, blocks * lanes, h, w)
        return {"y": plain[:, : self.outputs_]}


class OurMatmul(Kernel):
    """Weights in column panels."""

    def __init__(self, case: Matmul) -> None:
        from tvm import te

        from tvmscope.compiler import targets
        from tvmscope.compiler.cost import tiles
        from tvmscope.compiler.kernels import blocked, packing

        data, weight, bias = case.arrays()
        host = targets.host_target()
        packed = packing.pack_columns(weight, tiles.panel(host))
        x, w, b = (
            te.placeholder(a.shape, name=n) for a, n in ((data, "x"), (packed, "w"), (bias, "b"))
        )
        rows = tiles.padded_rows(case.rows, host)
        y = blocked.matmul(x, w, case.columns, rows, "float32")
        out = te.compute(y.shape, lambda i, j: y(i, j) + b(j))
        arrays = [data, packed, bias, np.zeros((case.rows, case.columns), np.float32)]
        super().__init__(te.create_prim_func([x, w, b, out]), arrays, "matmul")

    def outputs(self) -> dict[str, Array]:
        return {"y": self.result()}


def _blocked(data: Array) -> Array:
    from tvmscope.compiler.kernels.packing import filled

    data = filled(data, 1)
    n, c, h, w = data.shape
    return np.ascontiguousarray(data.reshape(n, c // 16, 16, h, w).transpose(0, 1, 3, 4, 2))


def load_ours(request: tuple[int, int]) -> Kernel:
    """Called in our worker with a case's number and the thread count."""
    case = CASES[request[0]]
    return OurMatmul(case) if isinstance(case, Matmul) else OurConvolution(case)


class Torch:
    """oneDNN's convolution on its own blocked tensors, MKL's matmul."""

    def __init__(self, case: Convolution | Matmul, threads: int) -> None:
        import torch

        torch.set_num_threads(threads)
        self.torch = torch
        data, weight, bias = (torch.from_numpy(a) for a in case.arrays())
        if isinstance(case, Matmul):
            columns = weight.T.contiguous()
            self.settings = {"library": "MKL"}
            self._call = lambda: torch.nn.functional.linear(data, columns, bias)
            return
        groups = case.outputs if case.depthwise else 1
        shape, pad, stride = list(data.shape), [case.padding] * 2, [case.stride] * 2
        packed = torch._C._nn.mkldnn_reorder_conv2d_weight(
            weight.to_mkldnn(), pad, stride, [1, 1], groups, shape
        )
        x, b = data.to_mkldnn(), bias.to_mkldnn()
        self.settings = {"library": "oneDNN"}
        self._call = lambda: torch.conv2d(x, packed, b, stride, pad, [1, 1], groups)

    def run(self) -> None:
        with self.torch.inference_mode():
            self._call()

    def outputs(self) -> dict[str, Array]:
        with self.torch.inference_mode():
            found = self._call()
        return {"y": (found.to_dense() if found.is_mkldnn else found).numpy()}


def load_torch(request: tuple[int, int]) -> Torch:
    """Called in PyTorch's worker, likewise."""
    return Torch(CASES[request[0]], request[1])


def main() -> None:
    """Measure each case, then print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--duration", type=float, default=0.6, help="seconds per side and kernel")
    parser.add_argument("--threads", type=int, default=cpu_features.usable_cores())
    parser.add_argument("--only", default="", help="kernels whose name contains this")
    args = parser.parse_args()
    env = {k: str(args.threads) for k in ("TVM_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")}
    roof = _roof(args.threads)
    print(f"roof: {roof / 1e9:.0f} GFLOP/s on {args.threads} threads, float32\n")
    print("| kernel | ours | GFLOP/s | share of roof | PyTorch's | GFLOP/s | ours is |")
    print("|---|---|---|---|---|---|---|")
    ratios = []
    with Worker("tvmscope", env=env) as ours, Worker("torch", env=env) as theirs:
        for case in CASES:
            if args.only in case.name:
                ratios.append(_measure(case, ours, theirs, roof, args.duration, args.threads))
    print(f"\ngeometric mean over {len(ratios)} kernels: {geometric_mean(ratios):.2f}x")


def _measure(
    case: Convolution | Matmul,
    ours: Worker,
    theirs: Worker,
    roof: float,
    duration: float,
    threads: int,
) -> float:
    lanes, infos, results = [], [], []
    with TemporaryDirectory() as folder:
        for worker, load in ((ours, here(load_ours)), (theirs, here(load_torch))):
            worker.resume()
            infos.append(worker.load(load, (CASES.index(case), threads)))
            file = Path(folder) / "outputs.npz"
            worker.outputs(file)
            results.append(np.load(file)["y"])
            worker.pause()
            lanes.append(Lane(worker.name, worker))
    error = np.abs(results[0] - results[1]).max() / np.abs(results[1]).max()
    if not error < 1e-4:
        sys.exit(f"{case.name}: the two disagree by {error:.1e} of the largest value")
    for _ in interleave(lanes, MeasureOptions(duration_s=duration)):
        pass
    for lane in lanes:
        if lane.failure is not None:
            raise lane.failure
    times = [median_s(Measurement(rounds_s=tuple(lane.rounds_s))) for lane in lanes]
    ratio = ratio_interval(lanes[1].rounds_s, lanes[0].rounds_s)
    rates = [case.flops / t / 1e9 for t in times]
    print(
        f"| {case.name} | {infos[0].settings['rule']} | {rates[0]:.0f} | "
        f"{rates[0] * 1e9 / roof:.0%} | {infos[1].settings['library']} | {rates[1]:.0f} | "
        f"{ratio.ratio:.2f}x [{ratio.lo:.2f}, {ratio.hi:.2f}] |",
        flush=True,
    )
    return ratio.ratio


def _roof(threads: int) -> float:
    from tvmscope.core.target import Target
    from tvmscope.profiling import roofs

    features = tuple(cpu_features.reported())
    here = Target(kind="llvm", arch="native", features=features, cores=threads)
    measured = roofs.measure(here, fresh=True)
    return next(
        r.flops_per_s
        for r in measured
        if r.dtype == "float32" and r.threads == threads and r.flops_per_s is not None
    )


if __name__ == "__main__":
    main()
