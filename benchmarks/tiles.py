"""Direct convolutions by register tile: GFLOP/s of each way to compute them, and the roof.

    python benchmarks/tiles.py [--threads 1] [--only 1x1] [--limit 120] [--cold]
    python benchmarks/tiles.py --target cpu:emeraldrapids --save FOLDER   # here
    python benchmarks/tiles.py --load FOLDER                              # over there

The ways of a convolution run in turns in one process; the best run of each counts. The first is
what the model of the machine's ports chooses. `--cold` reads 64 MiB of other data in between, so
that weights come from memory as they do inside a network.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from kernels import CASES, Convolution, _blocked, _roof

from tvmscope.core.target import Target
from tvmscope.core.tuning import Candidate, Choice, Params
from tvmscope.machine import cpu_features

_RANKS = 6
_TURNS = 9


def ways(case: Convolution, target: Target) -> list[Params]:
    """The rule's own choice, then other tiles, orders, rows, and Winograd."""
    from tvmscope.compiler.cost import tiles

    found: list[Params] = [{}]
    direct: Params = {"kernel": "direct"} if case.kernel == 3 and case.stride == 1 else {}
    if direct:
        found += [{"kernel": "winograd4"}, {"kernel": "winograd2"}, dict(direct)]
    found += [{**direct, "rank": n} for n in range(1, _RANKS)]
    found += [{**direct, "group": n} for n in (1, 8, 1 << 20)]
    found += [{**direct, "prefetch": 0}, {**direct, "unroll": 8}]
    found += [{**direct, "tile": tile} for tile in ("2x1x14", "2x1x7", "4x1x4", "4x1x7", "1x1x14")]
    found += [{**direct, "columns": tiles.columns(case.output_size, target)}]
    return found


@dataclass(frozen=True)
class Way:
    """One kernel of a library: what it was asked for, what it became, and its arguments."""

    name: str
    tile: str
    symbol: str
    shapes: list[list[int]]


def lowered(case: Convolution, target: Target, params: Params, symbol: str) -> tuple[Any, Way]:
    """A scheduled kernel."""
    import tvm
    from tvm import te

    from tvmscope.compiler import targets
    from tvmscope.compiler.kernels import blocked, convolutions
    from tvmscope.compiler.schedules import cpu
    from tvmscope.compiler.schedules.apply import apply_schedules
    from tvmscope.compiler.tunable.knobs import Knobs

    data, weight, bias = case.arrays()
    is_blocked, size, pad = case.inputs > 3, case.output_size, (case.padding,) * 4
    asked = convolutions.Convolution(
        kernel=weight,
        window=blocked.Window((case.stride, case.stride), pad, (1, 1)),
        groups=case.inputs if case.depthwise else 1,
        given=data.shape,
        result=(1, case.outputs, size, size),
        dtype="float32",
    )
    choice = Choice(candidate=Candidate(params=params), source="a benchmark")
    knobs = Knobs({asked.workload(is_blocked): choice})
    kernel = convolutions.choose(asked, target, is_blocked, winograd=True, knobs=knobs)
    arrays = [_blocked(data) if is_blocked else data, kernel.weight]
    arrays.append(_blocked(bias.reshape(1, -1, 1, 1)))
    x, w, b = (te.placeholder(a.shape, name=n) for a, n in zip(arrays, "xwb", strict=True))
    y = kernel.compute(x, w)
    out = te.compute(y.shape, lambda n, o, i, j, c: te.max(y(n, o, i, j, c) + b(n, o, 0, 0, c), 0))
    function = te.create_prim_func([x, w, b, out]).with_attr("global_symbol", symbol)
    with tvm.target.Target(targets.to_tvm(target)):
        module = apply_schedules(cpu.RULES, target, remarks := [])(tvm.IRModule({symbol: function}))
    if remarks:
        raise RuntimeError("; ".join(map(str, remarks)))
    noted = [part for part in module.script().split('"') if part.count("x") in (1, 2)]
    tile = next((part for part in noted if part.replace("x", "").isdigit()), kernel.name)
    name = " ".join(f"{k}={v}" for k, v in params.items()) or "chosen"
    shapes = [list(a.shape) for a in arrays] + [[int(d) for d in out.shape]]
    return module, Way(name, tile, symbol, shapes)


def compiled(case: Convolution, target: Target) -> tuple[Any, list[Way]]:
    """A library with all ways of a convolution."""
    import tvm

    from tvmscope.compiler import targets

    whole, found = tvm.IRModule(), []
    for number, params in enumerate(ways(case, target)):
        try:
            module, way = lowered(case, target, params, f"way{number}")
        except (RuntimeError, ValueError) as e:
            print(f"| {case.name} | {params} | | failed: {str(e)[-60:]!r} | |")
            continue
        whole.update(module)
        found.append(way)
    return tvm.compile(whole, target=tvm.target.Target(targets.to_tvm(target))), found


def save(case: Convolution, target: Target, folder: Path, number: int) -> None:
    """Write a library for another machine, and what is in it."""
    library, found = compiled(case, target)
    folder.mkdir(parents=True, exist_ok=True)
    library.export_library(str(folder / f"{number:02}.so"))
    said = {"case": asdict(case), "ways": [asdict(way) for way in found]}
    (folder / f"{number:02}.json").write_text(json.dumps(said))


def saved(folder: Path) -> Iterator[tuple[Convolution, Any, list[Way]]]:
    """The libraries of a folder; TVM's runtime is enough to load them."""
    import tvm

    for file in sorted(folder.glob("*.json")):
        said = json.loads(file.read_text())
        library = tvm.runtime.load_module(str(file.with_suffix(".so")))
        yield Convolution(**said["case"]), library, [Way(**way) for way in said["ways"]]


def calls_of(library: Any, found: list[Way]) -> dict[str, Callable[[], None]]:
    """Each way as a call on data of its own."""
    import tvm

    random = np.random.default_rng(0)
    calls = {}
    for way in found:
        given = [random.standard_normal(shape, dtype=np.float32) for shape in way.shapes]
        args = [tvm.runtime.tensor(a) for a in given]
        calls[way.name] = partial(library[way.symbol], *args)
    return calls


def race(
    calls: dict[str, Callable[[], None]], other: np.ndarray[Any, Any] | None
) -> dict[str, float]:
    """The best time of each call, in seconds."""
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(_TURNS):
        for name, call in calls.items():
            if other is not None:
                other.sum()
            start = time.perf_counter()
            call()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def main() -> None:
    """Print a line per convolution and way, or save them all for another machine."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", default="", help="kernels whose name contains this")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds for everything")
    parser.add_argument("--cold", action="store_true")
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--save", type=Path, help="a folder for libraries, which are not run")
    parser.add_argument("--load", type=Path, help="a folder that --save filled")
    args = parser.parse_args()
    os.environ["TVM_NUM_THREADS"] = str(args.threads)
    os.environ.setdefault("TVM_BIND_THREADS", "0")
    end = time.monotonic() + args.limit
    wanted = [c for c in CASES if isinstance(c, Convolution) and not c.depthwise]
    wanted = [case for case in wanted if args.only in case.name]
    spread = [case for first in (3, 1, 2, 0) for case in wanted[first::4]]  # all kinds early
    if args.load:
        show(saved(args.load), args, end)
        return
    from tvmscope.compiler import targets

    target = targets.resolve(args.target, cores=args.threads)
    if args.save:
        for number, case in enumerate(spread):
            save(case, target, args.save, number)
    else:
        show(((case, *compiled(case, target)) for case in spread), args, end)


def show(
    libraries: Iterator[tuple[Convolution, Any, list[Way]]], args: argparse.Namespace, end: float
) -> None:
    """Race the ways of each convolution, until the time is over."""
    roof = _roof(args.threads)
    print(f"{cpu_features.model_name()}, {args.threads} threads, roof {roof / 1e9:.0f} GFLOP/s\n")
    print("| convolution | way | tile | GFLOP/s | share of roof |\n|---|---|---|---|---|")
    other = np.ones(16 << 20, np.float32) if args.cold else None
    for case, library, found in libraries:
        tiles = {way.name: way.tile for way in found}
        for way, seconds in race(calls_of(library, found), other).items():
            rate = case.flops / seconds
            print(f"| {case.name} | {way} | {tiles[way]} | {rate / 1e9:.0f} | {rate / roof:.0%} |")
        sys.stdout.flush()
        if time.monotonic() > end:
            break


if __name__ == "__main__":
    main()
