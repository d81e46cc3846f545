"""What a call into PyTorch costs a compiled model: small models with and without one.

    python benchmarks/fallback.py [--calls 20000]

The overhead is that of the call alone: the time of a model with one operator in PyTorch, less the
time of the same operator in eager PyTorch, and less that of a compiled model that does nothing.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch

from tvmscope.compiler.frontends.torch import importer
from tvmscope.core.options import CompileOptions


def best(run: Callable[[], object], calls: int) -> float:
    """Microseconds of one call: the fastest of many short rounds, as the machine may be busy."""
    rounds = []
    for _ in range(20):
        start = time.perf_counter()
        for _ in range(calls // 20):
            run()
        rounds.append((time.perf_counter() - start) / (calls // 20) * 1e6)
    return min(rounds)


class Named(torch.nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


def main() -> None:
    """Print the times."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=20_000)
    calls = parser.parse_args().calls
    import tvm
    from tvm import relax

    from tvmscope.compiler import in_memory, pipeline, targets
    from tvmscope.runtime import fallback

    x = torch.rand(16)
    described = targets.to_tvm(in_memory.this_machine())
    target = tvm.target.Target(described, host=described)
    times = {}
    for name, function in {"compiled": torch.relu, "in PyTorch": torch.lgamma}.items():
        program = importer.decomposed(torch.export.export(Named(function), (x,)))
        imported = importer.translate(program, name, fallback=True)
        lowered = pipeline.run(imported.module, in_memory.this_machine(), target, CompileOptions())
        fallback.register(imported.fallbacks, 1)
        built = relax.build(lowered.module, target, relax_pipeline=None)
        run = relax.VirtualMachine(built, tvm.cpu())["main"]
        given = tvm.runtime.tensor(x.numpy())
        times[name] = best(lambda run=run, given=given: run(given), calls)
    with torch.inference_mode():
        times["eager"] = best(lambda: torch.lgamma(x), calls)
    for name, found in times.items():
        print(f"{name}: {found:.1f} us a call")
    print(f"overhead: {times['in PyTorch'] - times['compiled'] - times['eager']:.1f} us a call")


if __name__ == "__main__":
    main()
