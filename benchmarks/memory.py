"""What a model adds to the memory of a bare runtime: ours beside ONNX Runtime and OpenVINO.

python benchmarks/memory.py [--model resnet50] [--threads N]

Each runtime is imported in a process of its own; what it holds then is not counted. Resident is
after some runs, peak is the most at any time, loading included.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from tvmscope.backends import all_backends
from tvmscope.backends.api import LoadRequest
from tvmscope.core.precision import FLOAT32
from tvmscope.machine import cpu_features
from tvmscope.measure.remote import here
from tvmscope.measure.worker import Worker
from tvmscope.stages.builder import Builder
from tvmscope.stages.load import prepared
from tvmscope.stages.options import Options
from tvmscope.stages.targets import resolve_targets

RUNTIMES = {"onnxruntime": "onnxruntime", "openvino": "openvino", "tvmscope": "tvm"}
"""Backends by what they import; the others are compared with the first."""


def import_runtime(name: str) -> None:
    """Called in the worker."""
    if name == "tvm":
        from tvmscope.runtime import tvm_compat

        tvm_compat.import_tvm(torch=False)
    else:
        __import__(name)


def memory_bytes() -> tuple[int, int]:
    """Resident memory now and at its most."""
    lines = Path("/proc/self/status").read_text().splitlines()
    found = {line.split(":")[0]: int(line.split()[1]) for line in lines if line.endswith(" kB")}
    return found["VmRSS"] << 10, found["VmHWM"] << 10


def main() -> None:
    """Measure, then print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--threads", type=int, default=cpu_features.usable_cores())
    args = parser.parse_args()
    options = Options.of(target="cpu", threads=args.threads)
    backends, _ = all_backends()
    print("| runtime | bare import | resident adds | peak adds |\n|---|---|---|---|")
    first: tuple[int, int] | None = None
    with prepared(args.model, options) as ready, TemporaryDirectory() as folder:
        (target,) = resolve_targets(options)
        artifact = Path(folder) / "artifact"
        with Builder(ready, args.threads) as builder:
            builder.build(artifact, target, options.compile)
        for name, module in RUNTIMES.items():
            backend = backends[name]
            request = LoadRequest(
                folder=str(ready.folder), device="cpu", precision=FLOAT32, threads=args.threads
            )
            if backend.compiles:
                request = replace(request, artifact=str(artifact))
            with Worker(name, env=backend.env(args.threads)) as worker:
                worker.call(here(import_runtime), module)
                bare, _ = worker.call(here(memory_bytes))
                worker.load(backend.load, request)
                worker.time(5)
                resident, peak = worker.call(here(memory_bytes))
            added = (resident - bare, peak - bare)
            first = first or added
            shown = [
                f"{n / 2**20:.0f} MiB ({n / base:.2f}x)"
                for n, base in zip(added, first, strict=True)
            ]
            print(f"| {name} | {bare / 2**20:.0f} MiB | {' | '.join(shown)} |", flush=True)


if __name__ == "__main__":
    main()
