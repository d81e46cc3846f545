"""What register tile, blocking and layout are worth on this machine: the pictures of the docs.

python benchmarks/schedule_pictures.py [--output docs/images] [--threads N]

Each point is the fastest of many runs of one kernel: what the schedule can do, not what the
machine did under load.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

REPEATS = 60


def convolution(
    inputs: int, size: tuple[int, int], outputs: int, kernel: int, width: int, **params: int
) -> Any:
    """A padded convolution on channel blocks with its bias, as TIR."""
    from tvm import te

    from tvmscope.compiler.kernels import blocked
    from tvmscope.compiler.tunable import knobs

    pad = (kernel // 2,) * 4
    window = blocked.Window((1, 1), pad, (1, 1))
    x = te.placeholder((1, inputs // 16, *size, 16), name="x")
    w = te.placeholder((outputs // 16, inputs // 16, kernel, kernel, 16, 16), name="w")
    b = te.placeholder((1, outputs // 16, 1, 1, 16), name="b")
    notes = knobs.notes("picture", params)
    y = blocked.conv2d(x, w, window, width, "float32", inputs, notes=notes)
    out = te.compute(y.shape, lambda n, o, i, j, c: y(n, o, i, j, c) + b(n, o, 0, 0, c))
    return te.create_prim_func([x, w, b, out]).with_attr("global_symbol", "main")


def best_s(module: Any, target: Any) -> float:
    """The shortest of many runs."""
    import tvm

    function = module["main"]
    with target:
        run = tvm.compile(module, target=target)["main"]
    rng = np.random.default_rng(0)
    shapes = [[int(d) for d in p.ty.shape] for p in function.params]
    args = [tvm.runtime.tensor(rng.standard_normal(s).astype(np.float32)) for s in shapes]
    for _ in range(3):
        run(*args)
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        run(*args)
        times.append(time.perf_counter() - start)
    return min(times)


def register_tile(host: Any, target: Any) -> list[tuple[float, float]]:
    """GFLOP/s of a 1x1 convolution by columns of its tile; rows are as long as tiles divide."""
    from tvmscope.compiler.schedules.cpu.conv2d import schedule_conv2d

    points = []
    for columns in (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28):
        row = columns * max(2, round(56 / columns))
        function = convolution(256, (28, row), 128, 1, row, columns=columns)
        schedule = schedule_conv2d(function, host)
        flops = 2.0 * 256 * 128 * 28 * row
        points.append((columns, flops / best_s(schedule.mod, target) / 1e9))
    return points


def blocking(host: Any, target: Any) -> dict[str, list[tuple[float, float]]]:
    """GFLOP/s of a 1x1 convolution by its input channels: rows at a time, and tile by tile."""
    from tvmscope.compiler.cost import tiles
    from tvmscope.compiler.schedules.cpu.conv2d import schedule_conv2d

    width = tiles.padded(56, host)
    lines: dict[str, list[tuple[float, float]]] = {
        "tile finished in registers": [],
        "row by row": [],
    }
    for channels in (16, 32, 64, 128, 256, 512):
        flops = 2.0 * channels * 128 * 56 * 56
        for (_, line), finish in zip(lines.items(), (1, 0), strict=True):
            function = convolution(channels, (56, 56), 128, 1, width, finish=finish)
            schedule = schedule_conv2d(function, host)
            line.append((channels, flops / best_s(schedule.mod, target) / 1e9))
    return lines


def layout(host: Any, target: Any) -> list[tuple[str, float]]:
    """GFLOP/s of one 3x3 convolution as it comes, parallel and vectorised, and on blocks."""
    import tvm
    from tvm import te, topi

    from tvmscope.compiler.cost import tiles
    from tvmscope.compiler.schedules.cpu.conv2d import schedule_conv2d
    from tvmscope.compiler.schedules.cpu.fallback import schedule_fallback

    x, w = te.placeholder((1, 128, 28, 28), name="x"), te.placeholder((128, 128, 3, 3), name="w")
    y = topi.nn.conv2d(x, w, 1, 1, 1, "NCHW", "OIHW", "float32")
    plain = te.create_prim_func([x, w, y]).with_attr("global_symbol", "main")
    blocks = schedule_conv2d(convolution(128, (28, 28), 128, 3, tiles.padded(28, host)), host)
    modules = {
        "NCHW, as it comes": tvm.IRModule({"main": plain}),
        "NCHW, parallel\nand vectorised": schedule_fallback(plain, host).mod,
        "NCHW16c,\nregister tile": blocks.mod,
    }
    flops = 2.0 * 128 * 128 * 9 * 28 * 28
    return [(name, flops / best_s(module, target) / 1e9) for name, module in modules.items()]


def draw(file: Path, title: str, label: str, roof: float, plot: Callable[[Any], None]) -> None:
    """One small figure with the roof as a line."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "tvmscope", "font.size": 9})
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(5.2, 2.6), layout="constrained")
    plot(axes)
    axes.axhline(roof, color="#888", linestyle="--", linewidth=1)
    axes.text(0.01, roof, "measured roof", color="#666", va="bottom",
              transform=axes.get_yaxis_transform())  # fmt: skip
    axes.set(title=title, xlabel=label, ylabel="GFLOP/s", ylim=(0, roof * 1.15))
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(file, metadata={"Date": None})
    pyplot.close(figure)


def main() -> None:
    """Measure and draw all three."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("docs/images"))
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    os.environ["TVM_NUM_THREADS"] = str(args.threads)
    import tvm

    from tvmscope.compiler import targets
    from tvmscope.profiling import roofs

    host = targets.host_target(cores=args.threads)
    target = tvm.target.Target(targets.to_tvm(host))
    roof = next(
        r.flops_per_s / 1e9
        for r in roofs.measure(host, fresh=True)
        if r.flops_per_s and r.dtype == "float32" and r.threads == args.threads
    )
    tile, chunks, layouts = (f(host, target) for f in (register_tile, blocking, layout))
    for name, points in (("columns", tile), *chunks.items(), ("layout", layouts)):
        for x, y in points:
            print(
                f"{name:<28} {str(x).replace(chr(10), ' '):<32} {y:7.1f} GFLOP/s  {y / roof:4.0%}"
            )
    draw(args.output / "register-tile.svg", "1x1 convolution 256 to 128", "columns in registers",
         roof, lambda axes: axes.plot(*zip(*tile, strict=True), marker="o"))  # fmt: skip

    def chunked(axes: Any) -> None:
        for name, line in chunks.items():
            axes.plot(*zip(*line, strict=True), marker="o", label=name)
        axes.set_xscale("log", base=2)
        axes.set_xticks([x for x, _ in line], [str(x) for x, _ in line])
        axes.legend(loc="lower right", frameon=False)

    draw(args.output / "blocking.svg", "1x1 convolution to 128 channels at 56x56",
         "input channels", roof, chunked)  # fmt: skip
    draw(args.output / "layout.svg", "3x3 convolution 128 to 128 at 28x28", "", roof,
         lambda axes: axes.bar(*zip(*layouts, strict=True), width=0.5))  # fmt: skip


if __name__ == "__main__":
    main()
