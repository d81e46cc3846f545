"""How long compiling takes: from the exported model to the artifact, and again from the cache.

    python benchmarks/compile.py [MODEL ...] [--against SRC] [--rounds 1] [--threads N]

Loading a model (which exports it) and importing the compiler are shown apart. `--against` names the
`src` folder of another commit: both compile in turns, each in a process of its own, and the ratios
of wall clock and of processor time are shown. Processor time hardly depends on what else runs.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

MODELS = ("resnet50", "torchvision:densenet201")
OURS = Path(__file__).resolve().parents[1] / "src"
Times = dict[str, float]


def compile_once(prepared: Path, output: Path, threads: int) -> Times:
    """In the child: import the compiler, then compile."""
    start = time.perf_counter()
    from tvmscope.compiler import targets
    from tvmscope.compiler.build import build
    from tvmscope.core.options import CompileOptions
    from tvmscope.models.folder import read_prepared

    ready, target = read_prepared(prepared), targets.host_target(cores=threads)
    if ready.model.format == "torch":
        import torch  # noqa: F401
    imported, used = time.perf_counter(), _cpu_s()
    build(ready, output, target, target, CompileOptions(threads=threads))
    done = time.perf_counter()
    return {"import": imported - start, "compile": done - imported, "cpu": _cpu_s() - used}


def _cpu_s() -> float:
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(u.ru_utime + u.ru_stime for u in map(resource.getrusage, kinds))


def in_child(source: Path, verb: str, *words: str) -> Times:
    """Run this file in a process that imports tvmscope from `source`."""
    env = {**os.environ, "PYTHONPATH": str(source)}
    command = [sys.executable, __file__, f"--child-{verb}", *words]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    found: Times = json.loads(done.stdout.splitlines()[-1])
    return found


def load(model: str, folder: Path) -> Times:
    """In the child: export a model into a prepared folder."""
    from tvmscope.core.options import LoadOptions
    from tvmscope.models.prepare import prepare

    start = time.perf_counter()
    prepare(model, str(folder), LoadOptions(offline=True, need_onnx=False), None)
    return {"load": time.perf_counter() - start}


def cached(prepared: Path, output: Path, threads: int) -> Times:
    """In the child: what a user waits for who compiles the same model once more."""
    start = time.perf_counter()
    from tvmscope.compiler import targets
    from tvmscope.core.options import CompileOptions
    from tvmscope.models.folder import read_prepared
    from tvmscope.stages.builder import Builder
    from tvmscope.stages.places import cache_folder

    target = targets.host_target(cores=threads, cache=cache_folder())
    with Builder(read_prepared(prepared), threads) as builder:
        builder.build(output, target, CompileOptions())
    heavy = [name for name in ("tvm", "torch") if name in sys.modules]
    if heavy:
        sys.exit(f"a hit must not import {', '.join(heavy)}")
    return {"cached": time.perf_counter() - start}


def measure(model: str, args: argparse.Namespace) -> str:
    """A row of the table."""
    threads = str(args.threads)
    sides = {"ours": OURS} | ({"other": args.against} if args.against else {})
    found: dict[str, list[Times]] = {name: [] for name in sides}
    with TemporaryDirectory() as scratch:
        folder = Path(scratch)
        loaded = in_child(OURS, "load", model, str(folder / "model"))["load"]
        for _ in range(args.rounds):
            for name, source in sides.items():
                words = (str(folder / "model"), str(folder / name), threads)
                found[name].append(in_child(source, "compile", *words))
        os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
        words = (str(folder / "model"), str(folder / "again"), threads)
        again = [in_child(OURS, "cached", *words)["cached"] for _ in range(2)][1]
    ours = {key: median(t[key] for t in found["ours"]) for key in found["ours"][0]}
    ratios = "| | |"
    if args.against:
        other = {key: median(t[key] for t in found["other"]) for key in ours}
        ratios = (
            f"| {other['compile'] / ours['compile']:.2f}x | {other['cpu'] / ours['cpu']:.2f}x |"
        )
    return (
        f"| {model} | {loaded:.1f} | {ours['import']:.1f} | {ours['compile']:.1f} | "
        f"{ours['cpu']:.1f} | {again:.2f} {ratios}"
    )


def main() -> None:
    """Print a row per model."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("--against", type=Path)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    args = parser.parse_args()
    head = ("load s", "import s", "compile s", "processor s", "again s", "other/ours", "processor")
    print(f"| model | {' | '.join(head)} |\n|{'---|' * 8}", flush=True)
    for model in args.models:
        print(measure(model, args), flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1].startswith("--child-"):
        verb, words = sys.argv[1].removeprefix("--child-"), sys.argv[2:]
        if verb == "load":
            made = load(words[0], Path(words[1]))
        else:
            run = compile_once if verb == "compile" else cached
            made = run(Path(words[0]), Path(words[1]), int(words[2]))
        print(json.dumps(made))
    else:
        main()
