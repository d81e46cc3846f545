"""Models compiled for another CPU, small enough to carry there together with their ONNX files.

    python scripts/cpu_models.py FOLDER [--target T] [--threads 1,2] [--archive FILE] [MODEL ...]

Every model gets a prepared folder, as `scripts/cpu_check.py` reads it, and in it an artifact for
each number of threads. Speed does not depend on the values of weights, as long as they are ordinary
numbers: weights repeat with a period of 16 channels, so that they, and what the compiler makes of
them, compress a hundredfold, and results can still be verified.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tarfile
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from tvmscope.compiler import targets
from tvmscope.core.model import Prepared
from tvmscope.core.options import CompileOptions, LoadOptions
from tvmscope.models.folder import read_prepared
from tvmscope.models.prepare import prepare
from tvmscope.runtime.artifact import WEIGHTS
from tvmscope.stages.builder import Builder
from tvmscope.storage.files import digest_file

AT_ALL_COUNTS = "resnet50"
AT_BOTH_ENDS = ("efficientnet_lite0", "mobilenet_v2", "minilm", "vit_b_16", "yolov4_tiny")
COUNTS = (1, 2, 4, 8, 16)
EMERALD_RAPIDS = (
    '{"kind": "llvm", "mcpu": "emeraldrapids",'
    ' "mattr": ["-amx-bf16", "-amx-int8", "-amx-tile", "-avx512fp16", "-avxvnni"]}'
)
"""Without what float32 kernels never use and a hypervisor may hide."""
PERIOD = 16
"""Channels after which weights repeat: one block of the layout."""
_LEAST = 64
"""Smaller tensors stay as they are: many of them are no weights."""


def counts_of(model: str, counts: tuple[int, ...]) -> tuple[int, ...]:
    """The numbers of threads that a model is measured with."""
    return counts if model == AT_ALL_COUNTS else tuple(dict.fromkeys((counts[0], counts[-1])))


def make(model: str, folder: Path, target: str, counts: tuple[int, ...]) -> None:
    """Export a model, redraw its weights, and compile it for every number of threads."""
    ready = _prepared(model, folder / model)
    for threads in counts_of(model, counts):
        where = replace(targets.resolve(target, cores=threads), cores=threads)
        with Builder(ready, threads) as builder:
            built = builder.build(folder / model / f"threads-{threads}", where, CompileOptions())
        print(model, threads, "threads:", f"{built.build_s:.0f} s", flush=True)


def _prepared(model: str, folder: Path) -> Prepared:
    if (folder / "model.json").exists():
        return read_prepared(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as scratch:
        file = Path(scratch) / f"{model}.onnx"
        words = ["-m", "tvmscope", "export", model, "--output", str(file)]
        subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL)
        redraw(file)
        described = prepare(str(file), str(folder), LoadOptions(offline=True), None)
    for note in described.notes:
        print(model, note, file=sys.stderr)
    return Prepared(folder, described)


def redraw(file: Path) -> None:
    """Let all weights of an ONNX file repeat, at the spread that keeps results in range."""
    import onnx
    from onnx import numpy_helper

    graph = onnx.load(str(file))
    sums = _summed_axes(graph.graph.node)
    for tensor in graph.graph.initializer:
        if tensor.data_type != onnx.TensorProto.FLOAT:
            continue
        values = numpy_helper.to_array(tensor)
        if values.size >= _LEAST:
            made = repeated(values, sums.get(tensor.name))
            tensor.CopyFrom(numpy_helper.from_array(made, tensor.name))
    onnx.save(graph, str(file))


def _summed_axes(nodes: Any) -> dict[str, int]:
    """The axis that each weight is summed over."""
    found: dict[str, int] = {}
    for node in nodes:
        if node.op_type in ("Conv", "ConvTranspose"):
            found[node.input[1]] = 1 if node.op_type == "Conv" else 0
        elif node.op_type in ("MatMul", "Gemm"):
            turned = any(a.name == "transB" and a.i for a in node.attribute)
            found[node.input[1]] = 1 if turned else 0
    return found


def repeated(values: np.ndarray[Any, Any], summed: int | None) -> np.ndarray[Any, Any]:
    """The first channels of both leading axes, over and over.

    Equal channels add up, where different ones would partly cancel: the square root makes up for
    that.
    """
    base = values[tuple(slice(0, PERIOD) for _ in values.shape[:2])]
    times = [-(-n // b) for n, b in zip(values.shape, base.shape, strict=True)]
    made = np.tile(base, times)[tuple(slice(0, n) for n in values.shape)]
    if summed is not None:
        made = made * np.sqrt(base.shape[summed] / values.shape[summed])
    return np.ascontiguousarray(made.astype(values.dtype))


def archive(folder: Path, file: Path) -> None:
    """Everything in one compressed file, in which equal weights lie once."""
    first: dict[str, Path] = {}
    for weights in sorted(folder.glob(f"*/*/{WEIGHTS}")):
        same = first.setdefault(digest_file(weights), weights)
        if same != weights and not os.path.samefile(same, weights):
            weights.unlink()
            weights.hardlink_to(same)
    with tarfile.open(file, "w:xz", preset=1) as out:
        out.add(folder, folder.name)
    print(f"{file}: {file.stat().st_size / 2**20:.1f} MiB", flush=True)


def main() -> None:
    """Make all models, then the archive."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("models", nargs="*", default=[])
    parser.add_argument("--target", default=EMERALD_RAPIDS)
    parser.add_argument("--threads", default=",".join(map(str, COUNTS)))
    parser.add_argument("--archive", type=Path)
    args = parser.parse_args()
    counts = tuple(int(n) for n in args.threads.split(","))
    for model in args.models or (AT_ALL_COUNTS, *AT_BOTH_ENDS):
        make(model, args.folder, args.target, counts)
    if args.archive:
        archive(args.folder, args.archive)


if __name__ == "__main__":
    main()
