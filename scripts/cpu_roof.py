"""A model's kernels at one thread, as shares of what its core can do at that moment.

    python scripts/cpu_roof.py MODEL [--turns 40] [--rule conv2d] [--least-mflop 1]

MODEL is a model's folder that `scripts/cpu_models.py` filled, with an artifact for one thread. On
a shared machine a core's own speed changes from one second to the next, so a roof that was measured
before says little. Here runs of the model and a loop of multiply-adds take turns on one core: each
run is set beside the loops before and after it. Runs whose two loops differ by more than 5 % count
for nothing. Printed are medians over the others, for each rule and for each kernel of one rule.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from statistics import median, quantiles

from cpu_cores import Cores

from tvmscope.backends.api import Trace, read_inputs
from tvmscope.backends.profilers.tvm import VmProfiler
from tvmscope.machine import cpu_features
from tvmscope.runtime.artifact import read_kernels
from tvmscope.runtime.loaded_artifact import load_callable

_STEADY = 1.05


def shares(
    trace: Trace, roof: float, rules: Mapping[str, str], least: float
) -> dict[tuple[str, str], float]:
    """The share of the roof of each rule ("" as the kernel) and of each kernel, in one run."""
    flops: dict[tuple[str, str], float] = defaultdict(float)
    seconds: dict[tuple[str, str], float] = defaultdict(float)
    for span in trace.spans:
        if (span.flops or 0.0) < least:
            continue
        rule = rules.get(span.kernel, "unknown")
        for key in ((rule, ""), (rule, span.kernel)):
            flops[key] += span.flops or 0.0
            seconds[key] += span.seconds
    return {key: flops[key] / seconds[key] / roof for key in flops}


def main() -> None:
    """Take turns, then print the shares."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--turns", type=int, default=40)
    parser.add_argument("--rule", default="conv2d", help="the rule whose kernels are listed")
    parser.add_argument("--least-mflop", type=float, default=1.0, help="of a kernel that counts")
    args = parser.parse_args()
    artifact = args.model / "threads-1"
    rules = {kernel.name: str(kernel.rule) for kernel in read_kernels(artifact)}
    cores = Cores()
    with cores.fastest(1) as where:
        loaded = load_callable(artifact, threads=1)
        profiler = VmProfiler(loaded, loaded.place(read_inputs(args.model)))
        for _ in range(3):
            profiler.run()
        before, rates = cores.rate(), []
        for _ in range(args.turns):
            profiler.run()
            after = cores.rate()
            rates.append((before, after))
            before = after
    runs = zip(profiler.traces()[3:], rates, strict=True)
    steady = [(t, (a + b) / 2) for t, (a, b) in runs if max(a, b) < _STEADY * min(a, b)]
    if not steady:
        raise SystemExit("the core was never steady")
    print(f"{cpu_features.model_name()}, {where}")
    own = [roof / 1e9 for _, roof in steady]
    print(f"{len(steady)} of {args.turns} runs count; the core did {min(own):.0f} to "
          f"{max(own):.0f} GFLOP/s beside them\n")  # fmt: skip
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for trace, roof in steady:
        for key, share in shares(trace, roof, rules, args.least_mflop * 1e6).items():
            found[key].append(share)
    print("| rule | kernel | share of the roof | middle half of the runs |\n|---|---|---|---|")
    for (rule, kernel), values in sorted(found.items()):
        if not kernel or rule == args.rule:
            low, _, high = quantiles(values, n=4) if len(values) > 1 else values * 3
            print(f"| {rule} | {kernel} | {median(values):.1%} | {low:.1%} to {high:.1%} |")


if __name__ == "__main__":
    main()
