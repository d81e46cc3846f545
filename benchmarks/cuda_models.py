"""Built-in models on a GPU beside PyTorch's rows, interleaved: ratios to the best peer.

python benchmarks/cuda_models.py [CASE ...] [--peers torch,torch-compile] [--every-peer]
                          [--duration 0.5s] [--jobs 8] [--budget-s 540]
                          [--option=--no-library ...] [-o results/cuda]

A case is MODEL[@SIDE]:PRECISION:BATCH[:OPTION=VALUE], such as resnet50:float16:1,
yolov3@640:float16:1, torchvision:swin_t:float16:1, resnet50:float16:1:db=none (without measured
configurations) or resnet50:float16:1:disable-pass=place-units (without generated kernels). The
model `all` stands for every built-in one; without a case, all are measured in float16 at batches 1,
8 and 32 and in float32 at 1. As many cases as
there are jobs load and compile side by side; those that are ready are measured one at a time, while
all others stand still (in_turns.py). Each leaves its slim session in the output folder, so that a
later call with the same folder measures what is missing; a case that was interrupted leaves none.
--beside takes a command that runs while cases load, such as tests. Models without their weights get
seeded random ones. --every-peer adds torch.compile's max-autotune, which takes minutes, and ONNX
Runtime's CUDA provider. A peer without a row is named below the table, with the reason.
"""

from __future__ import annotations

import argparse
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from in_turns import InTurns, Job

from tvmscope.core.comparison import compare
from tvmscope.core.measurement import Result
from tvmscope.core.session import Session, load
from tvmscope.core.stats import geometric_mean, median_s
from tvmscope.models.catalog import built_ins
from tvmscope.quantities import format_s

OURS = ("tvmscope", "tvmscope-tuned")
PICTURE = "x"
PEERS = "torch,torch-compile"
SLOW_PEERS = "torch-compile-max-autotune,onnxruntime"


@dataclass(frozen=True, kw_only=True)
class Case:
    """One model as it is measured."""

    model: str
    side: int | None
    precision: str
    batch: int
    option: str = ""
    """One of tvmscope's own: what changes our row."""

    @staticmethod
    def parse(text: str) -> Case:
        """The case of `yolov3@640:float16:1`."""
        *named, last = text.split(":")
        option = last if "=" in last else ""
        *model, precision, batch = named if option else (*named, last)
        name, _, side = ":".join(model).partition("@")
        return Case(
            model=name,
            side=int(side) if side else None,
            precision=precision,
            batch=int(batch),
            option=option,
        )

    @property
    def name(self) -> str:
        """The case as a file's name."""
        side = f"-{self.side}" if self.side else ""
        changed = f"-{self.option.replace('=', '-')}" if self.option else ""
        model = Path(self.model).name.replace(":", "-")
        return f"{model}{side}-{self.precision}-{self.batch}{changed}"

    def arguments(self) -> list[str]:
        """What the command line is given."""
        shape = [f"--shapes={PICTURE}:{self.batch}x3x{self.side}x{self.side}"] if self.side else []
        batch = [] if self.side else [f"--batch-size={self.batch}"]
        option = [f"--{self.option}"] if self.option else []
        return [self.model, f"--precision={self.precision}", *batch, *shape, *option]


ALL = ("all:float16:1", "all:float16:8", "all:float16:32", "all:float32:1")


def main() -> int:
    """Measure what is missing, then print a Markdown table; 1 where another command failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("cases", nargs="*", default=ALL)
    parser.add_argument("--peers", default=PEERS)
    parser.add_argument("--every-peer", action="store_true", help=f"also {SLOW_PEERS}")
    parser.add_argument("--duration", default="0.5s")
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--budget-s", type=float, default=float("inf"))
    parser.add_argument("--beside", action="append", default=[], help="runs while cases load")
    parser.add_argument("--option", action="append", default=[], help="for tvmscope bench")
    parser.add_argument("-o", "--output", type=Path, default=Path("results/cuda"))
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    # ignored where a script started this in the background, and so by the cases, which could then
    # not be interrupted
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        cases = [Case.parse(text) for given in args.cases for text in _meant(given)]
    except ValueError:
        parser.error("a case is MODEL[@SIDE]:PRECISION:BATCH[:OPTION=VALUE]")
    until = time.monotonic() + args.budget_s
    missing = [case for case in cases if not _kept(args.output, case).is_file()]
    failed = _measure(missing, args, until)
    _table(cases, args.output)
    return int(failed)


def _kept(folder: Path, case: Case) -> Path:
    return folder / f"{case.name}.json.xz"


def _meant(case: str) -> list[str]:
    model, _, rest = case.partition(":")
    return [f"{n}:{rest}" for n in sorted(built_ins())] if model == "all" else [case]


def _measure(cases: Sequence[Case], args: argparse.Namespace, until: float) -> bool:
    """Measure each case alone while the others load; their sessions are kept slim. True where a
    command that is no case failed, or had no time."""
    output: Path = args.output
    peers = f"{args.peers},{SLOW_PEERS}" if args.every_peer else args.peers
    options = [f"--backends=tvmscope,{peers}", f"--duration={args.duration}", *args.option]
    started = time.monotonic()
    with TemporaryDirectory() as folder:

        def job(case: Case) -> Job:
            command = [
                sys.executable, "-m", "tvmscope", "bench", *case.arguments(), "--target=cuda",
                "--graph", "--offline", *options, f"--output={Path(folder) / case.name}",
            ]  # fmt: skip
            return Job(name=case.name, command=command, log=output / f"{case.name}.log")

        def ended(done: Job, code: int) -> None:
            print(f"{done.name}: exit code {code} after {time.monotonic() - started:.0f} s")
            if done.name in by_name:
                _keep(by_name[done.name], Path(folder) / done.name, output)
            elif code:
                failed.append(done.name)

        failed: list[str] = []
        by_name = {case.name: case for case in cases}
        others = [
            Job(
                name=f"beside-{number}",
                command=shlex.split(text),
                log=output / f"beside-{number}.log",
                measures=False,
            )
            for number, text in enumerate(args.beside)
        ]
        jobs = [*others, *map(job, cases)]
        left = InTurns(jobs, ended, at_once=args.jobs, until=until).run()
    if left:
        print(f"no time for {', '.join(each.name for each in left)}", flush=True)
    return bool(failed) or any(each.name not in by_name for each in left)


def _keep(case: Case, session: Path, output: Path) -> None:
    if not (session / "session.json").is_file() or not load(session).complete:
        print(f"{case.name}: {(output / f'{case.name}.log').read_text()[-2000:]}", flush=True)
        return
    kept = _kept(output, case)
    slim = [sys.executable, "-m", "tvmscope", "report", str(session), f"--output={kept}"]
    subprocess.run(slim, stdout=subprocess.DEVNULL, check=True)
    shutil.rmtree(session)


def _table(cases: Sequence[Case], folder: Path) -> None:
    print("\n| model | precision, batch | tvmscope | best peer | tvmscope is | error |")
    print("|---" * 6 + "|")
    groups: dict[tuple[str, int], list[float]] = {}
    lacking: dict[str, list[str]] = {}
    for case in cases:
        file = _kept(folder, case)
        if not file.is_file():
            print(f"| {case.name} | | not measured | | | |")
            continue
        session = load(file)
        for reason in lacking_peers(session):
            lacking.setdefault(reason, []).append(case.name)
        ratio = _row(case, session)
        if ratio is not None and not case.option:
            groups.setdefault((case.precision, case.batch), []).append(ratio)
    for (precision, batch), ratios in groups.items():
        mean, least = geometric_mean(ratios), min(ratios)
        print(
            f"\n{precision}, batch {batch}: geometric mean {mean:.2f}x of the best peer over"
            f" {len(ratios)} models, the lowest {least:.2f}x"
        )
    for reason, names in lacking.items():
        print(f"\nnot among the peers of {', '.join(names)}: {reason}")


def lacking_peers(session: Session) -> list[str]:
    """The peers that have no time, each with the reason."""
    return [
        f"{r.task.label}: {r.status}: {r.reason}"
        for r in session.results
        if r.task.variant.backend not in OURS and (r.status != "ok" or r.measurement is None)
    ]


def _row(case: Case, session: Session) -> float | None:
    """Print one line; returns the speed-up over the fastest peer that is right."""
    measured = [r for r in session.results if r.status == "ok" and r.measurement is not None]
    ours = [r for r in measured if r.task.variant.backend in OURS]
    peers = [r for r in measured if r.task.variant.backend not in OURS]
    what = f"| {case.name} | {case.precision}, {case.batch}"
    if not ours or not peers:
        why = "; ".join(f"{r.task.label}: {r.reason}" for r in session.results if r.reason)
        print(f"{what} | {why} | | | |")
        return None
    mine, best = min(ours, key=_time), min(peers, key=_time)
    found = compare(mine, best)
    interval = f" [{found.ci95[0]:.2f}, {found.ci95[1]:.2f}]" if found.ci95 else ""
    error = f"{mine.accuracy.error:.1e}" if mine.accuracy and mine.accuracy.error else "-"
    print(
        f"{what} | {format_s(_time(mine))} | {format_s(_time(best))} {best.task.label}"
        f" | {found.speedup:.2f}x{interval} | {error} |"
    )
    return found.speedup


def _time(result: Result) -> float:
    return median_s(result.measurement) or float("inf")


if __name__ == "__main__":
    sys.exit(main())
