"""YOLOv3 with boxes decoded by assignment to slices: what its ScatterND cost, with and without fix.

    python benchmarks/scatter.py --target cuda --output results/scatter
    python benchmarks/scatter.py --target cpu --sizes 416 --precisions float32

The models are exported by torch's TorchScript exporter, which writes an index for every single
element that is assigned. On CUDA a run is one CUDA graph. Prints a Markdown table; leaves a session
and an artifact of each build in `--output`: `tvmscope compare` runs two of them in turns.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import tvmscope
from tvmscope.core.profile import KernelTime, Profile
from tvmscope.core.session import Session, save
from tvmscope.core.stats import RatioInterval, ratio_interval
from tvmscope.diagnose.engine import diagnose
from tvmscope.images.boxes import corners_of, overlap, suppress
from tvmscope.measure.machine_lock import alone
from tvmscope.measure.worker import Worker
from tvmscope.messages import Text
from tvmscope.profiling.kernels import PROFILE
from tvmscope.progress import Silent
from tvmscope.quantities import format_s
from tvmscope.stages.artifact import entry_for, inputs_for
from tvmscope.stages.options import Options
from tvmscope.storage.files import write_npz
from tvmscope.workflow.profile import profile
from tvmscope.workflow.run import run_artifact

PASS = "fast-scatter"
MOST_BOXES = 100
"""Random weights have no natural threshold: so many of the best candidates are compared."""
SAME_BOX, SAME_SCORE = 0.99, 0.005
ROUNDS, ROUND_S = 9, 0.6
"""Rounds in which the scatters and a plain copy take turns, and the seconds of each one's part."""


@dataclass(frozen=True)
class Build:
    """One compiled variant and where its things lie."""

    folder: Path
    size: int
    precision: str
    fixed: bool

    @property
    def place(self) -> Path:
        name = f"yolov3-{self.size}-{self.precision}-{'fixed' if self.fixed else 'unfixed'}"
        return self.folder / name

    @property
    def outputs(self) -> Path:
        return self.place / "outputs.npz"


class Notes(Silent):
    """Remarks alone; in_turns.py reads when this command waits for its turn."""

    def note(self, text: Text) -> None:
        print(text, flush=True)


def main() -> None:
    """Export, compile, measure, verify, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--sizes", default="416,640")
    parser.add_argument("--precisions", default="float32,float16")
    parser.add_argument("--output", type=Path, default=Path("results/scatter"))
    parser.add_argument("--duration", type=float, default=3.0, help="seconds of timing per build")
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 1) // 2))
    args = parser.parse_args()
    builds = [
        Build(args.output, int(size), precision, fixed)
        for size in args.sizes.split(",")
        for precision in args.precisions.split(",")
        for fixed in (False, True)
    ]
    start = time.perf_counter()
    for size in sorted({b.size for b in builds}):
        _export(args.output, size)
    print(f"exported after {time.perf_counter() - start:.0f} s", flush=True)
    with ThreadPoolExecutor(args.jobs) as pool:  # each build is a process of its own
        list(pool.map(lambda build: _compile(build, args.target), builds))
    print(f"compiled after {time.perf_counter() - start:.0f} s", flush=True)
    sessions = {build: _measure(build, args.duration) for build in builds}
    print(f"measured after {time.perf_counter() - start:.0f} s\n", flush=True)
    with alone(Notes().note):
        _table(sessions, args.target)


def _export(folder: Path, size: int) -> None:
    """The model as ONNX, an input, and what ONNX Runtime makes of it."""
    import onnxruntime
    import torch

    from tvmscope.core.options import LoadOptions
    from tvmscope.models.darknet import network
    from tvmscope.models.darknet.cfg import Parts
    from tvmscope.models.darknet.yolov3_layers import SIZE, yolov3

    folder.mkdir(parents=True, exist_ok=True)
    text = yolov3().replace(f"width={SIZE}", f"width={size}")
    text = text.replace(f"height={SIZE}", f"height={size}")
    made = network.build(text, Parts(form="scatter"), LoadOptions())
    file = folder / f"yolov3-{size}.onnx"
    names = {"input_names": ["images"], "output_names": ["boxes"]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the tracer remarks on every Python number
        torch.onnx.export(
            made.module, made.args, str(file), dynamo=False, opset_version=17, **names
        )
    inputs = {"images": made.args[0].numpy()}
    write_npz(folder / f"inputs-{size}.npz", inputs)
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    write_npz(folder / f"reference-{size}.npz", {"boxes": session.run(None, inputs)[0]})


def _compile(build: Build, target: str) -> None:
    tvmscope.compile(
        str(build.folder / f"yolov3-{build.size}.onnx"),
        build.place / "artifact",
        target=target,
        precision=build.precision,
        disabled_passes=() if build.fixed else (PASS,),
        graph=target.startswith("cuda"),
        force=True,
    )


def _measure(build: Build, duration_s: float) -> Session:
    """Timed, profiled, diagnosed and saved."""
    options = Options.of(
        inputs_file=build.folder / f"inputs-{build.size}.npz", duration_s=duration_s, force=True
    )
    artifact = build.place / "artifact"
    session = run_artifact(artifact, options, save_outputs=build.outputs, progress=Notes())
    profiled = profile(artifact, options, Notes())
    session = replace(
        session,
        profiles=profiled.profiles,
        kernel_ir=profiled.kernel_ir,
        roofs=profiled.roofs,
        warnings=profiled.warnings,
    )
    session = diagnose(session)
    save(session, build.place)
    return session


def _table(sessions: dict[Build, Session], target: str) -> None:
    print(
        "| model | precision | run, unfixed | run, fixed | ScatterND kernels, unfixed | fixed "
        "| ratio | plain copy of the heads | fixed / copy (95 %) | predicted saving | achieved "
        "| outputs | first finding, unfixed | first finding, fixed |"
    )
    print("|---" * 14 + "|")
    for build, after in sessions.items():
        if not build.fixed:
            continue
        unfixed = replace(build, fixed=False)
        before = sessions[unfixed]
        old, new = _scatters(before), _scatters(after)
        spent, left = (sum(k.total_s for k in found) for found in (old, new))
        moved = _bytes(old)
        predicted = None if moved is None else spent - _copy_s(moved, build.precision, target)
        copy_s, against = _beside_copy(build, target)
        cells = [
            f"YOLOv3-{build.size}", build.precision,
            format_s(before.profiles[0].end_to_end_s), format_s(after.profiles[0].end_to_end_s),
            f"{format_s(spent)} ({spent / before.profiles[0].end_to_end_s:.1%})", format_s(left),
            f"{spent / left:.1f}x" if left else "-", format_s(copy_s), _interval(against),
            _shown(predicted), format_s(spent - left), _verified(unfixed, build),
            _first(before), _first(after),
        ]  # fmt: skip
        print(f"| {' | '.join(cells)} |", flush=True)


def _scatters(session: Session) -> list[KernelTime]:
    """All kernels that have a ScatterND node among their sources."""
    (found,) = session.profiles
    assert isinstance(found, Profile)
    return _with_scatters(found)


def _with_scatters(profile: Profile) -> list[KernelTime]:
    return [k for k in profile.kernels if any("ScatterND" in op for op in k.source_ops)]


def _shown(seconds: float | None) -> str:
    return "-" if seconds is None else format_s(seconds)


def _first(session: Session) -> str:
    found = session.findings[0] if session.findings else None
    saving = "" if found is None or found.saving_s is None else f" ({format_s(found.saving_s)})"
    return "-" if found is None else f"{found.rule}: {found.title}{saving}"


def _bytes(kernels: list[KernelTime]) -> float | None:
    moved = [k.bytes for k in kernels]
    return None if not moved or None in moved else sum(b or 0.0 for b in moved)


def _beside_copy(build: Build, target: str) -> tuple[float, RatioInterval | None]:
    """A plain copy of all the numbers that are assigned into, and how long the scatters take of it.

    Both in turns, round by round. The numbers are those of the model's output: its heads. None
    where no kernel has a ScatterND left.
    """
    from tempfile import TemporaryDirectory

    from tvmscope.runtime import artifact as artifacts

    made = artifacts.read(build.place / "artifact")
    options = Options.of(inputs_file=build.folder / f"inputs-{build.size}.npz", force=True)
    width = 2 if build.precision == "float16" else 4
    moved = 2.0 * width * _read(build.folder / f"reference-{build.size}.npz").size
    scatters: list[list[float]] = []
    copies: list[list[float]] = []
    with TemporaryDirectory() as folder:
        write_npz(Path(folder) / "inputs.npz", inputs_for(made, options))
        entry = entry_for(made, folder, options)
        with Worker(entry.task.label, env=entry.env, timeout_s=600.0) as worker:
            worker.load(entry.load, entry.request)
            for _ in range(ROUNDS):
                found = worker.apply(PROFILE, entry.key, ROUND_S)
                scatters.append([sum(k.total_s for k in _with_scatters(found))])
                copies.append([_copy_s(moved, build.precision, target)])
    copy_s = statistics.median(c[0] for c in copies)
    return copy_s, ratio_interval(scatters, copies) if all(s[0] for s in scatters) else None


def _interval(found: RatioInterval | None) -> str:
    if found is None:
        return "none left"
    return f"{found.ratio:.2f} ({found.lo:.2f} to {found.hi:.2f})"


def _copy_s(moved: float, precision: str, target: str) -> float:
    """A plain copy that moves as many bytes, by torch; from buffers that take turns."""
    import torch

    device = "cuda" if target.startswith("cuda") else "cpu"
    count = int(moved) // 2 // (2 if precision == "float16" else 4)
    dtype = torch.float16 if precision == "float16" else torch.float32
    pairs = [[torch.ones(count, dtype=dtype, device=device) for _ in "ab"] for _ in range(8)]
    times = [_copy_once(torch, *pairs[n % len(pairs)]) for n in range(80)]
    return statistics.median(times[16:])


def _copy_once(torch: Any, source: Any, goal: Any) -> float:
    if not source.is_cuda:
        start = time.perf_counter()
        goal.copy_(source)
        return time.perf_counter() - start
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in "be")
    begin.record()
    goal.copy_(source)
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) / 1e3


def _verified(unfixed: Build, fixed: Build) -> str:
    """The fix against the same build without, and against ONNX Runtime; in fp16, box by box."""
    before, after = (_read(b.outputs) for b in (unfixed, fixed))
    reference = _read(fixed.folder / f"reference-{fixed.size}.npz")
    spread = float(np.ptp(reference))
    text = f"{np.abs(after - before).max() / spread:.1e} of their range from unfixed"
    text += f", {np.abs(after - reference).max() / spread:.1e} from ONNX Runtime"
    if fixed.precision == "float32":
        if np.abs(after - before).max() > 1e-5 * spread:
            raise SystemExit(f"{fixed.place}: outputs differ: {text}")
        return text
    matched, total = _match(before[0], after[0])
    if matched < total:
        raise SystemExit(f"{fixed.place}: {matched} of {total} boxes match; {text}")
    return f"{matched} of {total} boxes match; {text}"


def _read(file: Path) -> np.ndarray[Any, Any]:
    with np.load(file) as data:
        return data[data.files[0]].astype(np.float32)


def _match(before: np.ndarray[Any, Any], after: np.ndarray[Any, Any]) -> tuple[int, int]:
    """How many of the best boxes before have a partner after: class, place and score."""
    old, new = _boxes(before), _boxes(after)
    matched = 0
    for corners, score, kind in zip(*old, strict=True):
        near = overlap(corners, new[0]) >= SAME_BOX
        matched += bool((near & (abs(new[1] - score) <= SAME_SCORE) & (new[2] == kind)).any())
    return matched, len(old[0])


def _boxes(rows: np.ndarray[Any, Any]) -> tuple[Any, Any, Any]:
    scores = rows[:, 4] * rows[:, 5:].max(1)
    best = np.argsort(-scores, kind="stable")[:MOST_BOXES]
    corners, scores, kinds = corners_of(rows[best]), scores[best], rows[best, 5:].argmax(1)
    kept = suppress(corners, scores, kinds, 0.45)
    return corners[kept], scores[kept], kinds[kept]


if __name__ == "__main__":
    main()
