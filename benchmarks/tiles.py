"""Direct convolutions by register tile: GFLOP/s of each way to compute them, and the roof.

    python benchmarks/tiles.py [--threads 1] [--only 1x1] [--limit 120] [--cold]

The ways of a convolution run in turns in one process; the best run of each counts. The first is
what the model of the machine's ports chooses. `--cold` reads 64 MiB of other data in between, so
that weights come from memory as they do inside a network.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from kernels import CASES, Convolution, _blocked, _roof

from tvmscope.core.target import Target
from tvmscope.core.tuning import Candidate, Choice, Params
from tvmscope.machine import cpu_features

_RANKS = 3
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


def build(case: Convolution, target: Target, params: Params) -> tuple[str, Callable[[], None]]:
    """A kernel's tile, and its call."""
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
    arrays.append(np.zeros(tuple(int(d) for d in out.shape), np.float32))
    function = te.create_prim_func([x, w, b, out]).with_attr("global_symbol", "main")
    tvm_target = tvm.target.Target(targets.to_tvm(target))
    with tvm_target:
        module = apply_schedules(cpu.RULES, target, remarks := [])(tvm.IRModule({"main": function}))
    if remarks:
        raise RuntimeError("; ".join(remarks))
    run = tvm.compile(module, target=tvm_target)["main"]
    args = [tvm.runtime.tensor(a) for a in arrays]
    noted = [part for part in module.script().split('"') if part.count("x") in (1, 2)]
    tile = next((part for part in noted if part.replace("x", "").isdigit()), kernel.name)
    return tile, lambda: run(*args)


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
    """Print a line per convolution and way."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", default="", help="kernels whose name contains this")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds for everything")
    parser.add_argument("--cold", action="store_true")
    args = parser.parse_args()
    os.environ["TVM_NUM_THREADS"] = str(args.threads)
    from tvmscope.compiler import targets

    end = time.monotonic() + args.limit
    target = targets.host_target(cores=args.threads)
    roof = _roof(args.threads)
    print(f"{cpu_features.model_name()}, {target.arch}, {args.threads} threads, ", end="")
    print(f"roof {roof / 1e9:.0f} GFLOP/s\n")
    print(
        "| convolution | way | tile | GFLOP/s | share of roof |\n|---|---|---|---|---|", flush=True
    )
    other = np.ones(16 << 20, np.float32) if args.cold else None
    wanted = [c for c in CASES if isinstance(c, Convolution) and not c.depthwise]
    spread = [case for first in (3, 1, 2, 0) for case in wanted[first::4]]
    for case in spread:  # every kind is among the first few
        if args.only not in case.name:
            continue
        if time.monotonic() > end:
            break
        calls: dict[str, Callable[[], None]] = {}
        names: dict[str, str] = {}
        for params in ways(case, target):
            way = " ".join(f"{k}={v}" for k, v in params.items()) or "chosen"
            try:
                names[way], calls[way] = build(case, target, params)
            except (RuntimeError, ValueError) as e:
                print(f"| {case.name} | {way} | | failed: {str(e)[-60:]!r} | |")
        for way, seconds in race(calls, other).items():
            rate = case.flops / seconds
            print(f"| {case.name} | {way} | {names[way]} | {rate / 1e9:.0f} | {rate / roof:.0%} |")


if __name__ == "__main__":
    main()
