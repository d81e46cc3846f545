"""What an image costs in a batch and with one thread less, against a single image: interleaved.

python benchmarks/batch.py [--model resnet50] [--batches 8,32] [--duration 20]

A ratio of 1.00x means that the cost grows as the work does; more, that a batch is cheaper. Every
sample is as many images as the largest batch has, so that a disturbance of the machine weighs the
same in all rows. The batch "whole" is compiled without the pass that computes it in parts.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from math import lcm
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import tvmscope
from tvmscope.core.measurement import Measurement
from tvmscope.core.options import MeasureOptions
from tvmscope.core.stats import median_s, ratio_interval
from tvmscope.machine import cpu_features
from tvmscope.measure.interleave import Lane, interleave
from tvmscope.quantities import format_s
from tvmscope.runtime import tvm_compat
from tvmscope.runtime.loaded_artifact import load_callable

tvm = tvm_compat.import_tvm(torch=False)


@dataclass(frozen=True)
class Case:
    """One artifact and the threads that it runs on."""

    batch: int
    threads: int
    whole: bool = False

    @property
    def name(self) -> str:
        return f"{self.batch}{' whole' if self.whole else ''}"


class Model:
    """An artifact on random inputs, timed in this process, in which all rows share one heap."""

    def __init__(self, folder: Path, case: Case, images: int) -> None:
        self._loaded = load_callable(folder, threads=case.threads)
        rng = np.random.default_rng(0)
        inputs = {
            spec.name: rng.standard_normal(spec.shape).astype(spec.dtype)
            for spec in self._loaded.artifact.inputs
        }
        self._placed = self._loaded.place(inputs)
        self._threads, self._runs = case.threads, images // case.batch

    def resume(self) -> None:
        tvm_compat.set_thread_count(tvm, self._threads)

    def pause(self) -> None:
        """Its threads wait by themselves."""

    def time(self, n: int, loops: int = 1, cold: bool = False) -> list[float]:
        return [self._sample(loops) for _ in range(n)]

    def time_device(self, n: int) -> list[float]:
        raise NotImplementedError

    def _sample(self, loops: int) -> float:
        start = time.perf_counter()
        for _ in range(self._runs * loops):
            self._loaded.run(self._placed)
        return (time.perf_counter() - start) / loops


def main() -> None:
    """Compile, measure in turns, print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--batches", default="8,32")
    parser.add_argument("--duration", type=float, default=20.0, help="seconds per row")
    args = parser.parse_args()
    cores, sizes = cpu_features.usable_cores(), [int(b) for b in args.batches.split(",")]
    cases = [Case(1, cores), Case(1, max(cores // 2, 1))]
    cases += [Case(b, cores, whole) for b in sizes for whole in (False, True)]
    images = lcm(*sizes)
    with TemporaryDirectory() as folder:
        lanes = [_lane(args.model, case, images, Path(folder)) for case in cases]
        for _ in interleave(lanes, MeasureOptions(duration_s=args.duration)):
            pass
    print("| batch | threads | run | per image | a single image's cost |")
    print("|---|---|---|---|---|")
    for case, lane in zip(cases, lanes, strict=True):
        if lane.failure is not None:
            raise lane.failure
        _row(case, images, lane, lanes[0])


def _lane(model: str, case: Case, images: int, folder: Path) -> Lane:
    path = folder / case.name.replace(" ", "-")
    if not path.exists():
        off = {"disabled_passes": ("split-batch",)} if case.whole else {}
        tvmscope.compile(model, path, target="cpu", batch_size=case.batch, **off)
    return Lane(f"{case.name} on {case.threads}", Model(path, case, images))


def _row(case: Case, images: int, lane: Lane, single: Lane) -> None:
    image = median_s(Measurement(rounds_s=tuple(lane.rounds_s))) / images
    ratio = ratio_interval(single.rounds_s, lane.rounds_s)
    shown = "" if lane is single else f"{ratio.ratio:.2f}x [{ratio.lo:.2f}, {ratio.hi:.2f}]"
    run = format_s(image * case.batch)
    print(f"| {case.name} | {case.threads} | {run} | {format_s(image)} | {shown} |")


if __name__ == "__main__":
    main()
