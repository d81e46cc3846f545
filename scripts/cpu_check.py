"""Measures models beside ONNX Runtime on a machine with many cores, within a time limit.

    python scripts/cpu_check.py --output OUT [--models FOLDER] [--limit 460] [--duration 1.5]

Models are compiled several at a time, because that is most of the time, and measured one by one,
ResNet-50 first. `--models` is a folder that `scripts/cpu_models.py` filled. Every case leaves its
session in the output folder; the table goes to stdout and to OUT/table.md.
"""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from tvmscope.benchmark.plan import Entry
from tvmscope.core.session import Session
from tvmscope.core.stats import median_s
from tvmscope.errors import RunError, TvmscopeError
from tvmscope.machine import cpu_features
from tvmscope.progress import Silent
from tvmscope.stages.build import build_rows
from tvmscope.stages.facts import diagnosed
from tvmscope.stages.job import Job, begun
from tvmscope.stages.options import Options
from tvmscope.stages.plan import plan_rows, without_needless_export
from tvmscope.stages.profile import profile_rows
from tvmscope.stages.race import by_framework, race
from tvmscope.stages.rows import PlannedRow
from tvmscope.stages.targets import resolve_targets
from tvmscope.tuning.records.lookup import records_of

PROFILED = ("resnet50", 1)
"""The case whose kernels are timed one by one."""
AT_ALL_COUNTS = "resnet50"
AT_BOTH_ENDS = ("efficientnet_lite0", "mobilenet_v2", "minilm", "vit_b_16", "yolov4_tiny")
COMPILING_AT_ONCE = 8


@dataclass(frozen=True)
class Case:
    """A model on a number of threads."""

    model: str
    threads: int

    @property
    def name(self) -> str:
        return f"{self.model}-{self.threads}"


@dataclass(frozen=True)
class Built:
    """A case that is ready to be measured; its files live until `held` is closed."""

    job: Job
    rows: tuple[PlannedRow, ...]
    entries: tuple[Entry, ...]
    held: ExitStack


def cases(cores: int) -> list[Case]:
    """Those that matter most first."""
    counts = [n for n in (1, 2, 4, 8, 16) if n <= cores]
    ends = dict.fromkeys((1, counts[-1]))
    return [
        *(Case(AT_ALL_COUNTS, n) for n in counts),
        *(Case(model, n) for model in AT_BOTH_ENDS for n in ends),
    ]


def build(case: Case, args: argparse.Namespace, end: float) -> Built:
    """Load and compile a case."""
    if time.monotonic() > end:
        raise RunError("no time left to compile it")
    file = args.models / f"{case.model}.onnx" if args.models else None
    options = Options.of(
        target="cpu",
        backends="tvmscope,onnxruntime",
        threads=case.threads,
        duration_s=args.duration,
        min_rounds=5,
        offline=True,
        db="none",
        output=args.output / case.name,
        force=True,
        command="scripts/cpu_check.py",
    )
    where = resolve_targets(options)
    options = without_needless_export(options, where)
    held = ExitStack()
    source = str(file) if file and file.exists() else case.model
    job = held.enter_context(begun(source, options, where, "cpu", Silent()))
    rows = plan_rows(options, where, job.ready.model.format, records_of(options.db))
    entries = build_rows(rows, job.ready, options, job.artifacts, Silent())
    return Built(job, tuple(rows), entries, held)


def measure(case: Case, built: Built) -> Session:
    """Time a case, with its kernels where they are wanted."""
    job = built.job
    job.keep_race(race(built.entries, job.options, by_framework(job.ready), Silent()))
    if (case.model, case.threads) == PROFILED:
        job.keep_each(profile_rows(job, built.rows))
        job.keep(diagnosed(job.session))
    return job.finish()


def line(case: Case, session: Session) -> str:
    """A row of the table."""
    times: dict[bool, float] = {}
    told: list[str] = []
    for result in session.results:
        if result.measurement is None:
            told.append(f"{result.key.label}: {result.status} {result.reason or ''}")
        else:
            times[result.key.is_ours] = median_s(result.measurement)
    ours, theirs = times.get(True), times.get(False)
    shown = [f"{t * 1e3:.2f}" if t else "-" for t in (ours, theirs)]
    ratio = f"{theirs / ours:.2f}x" if ours and theirs else "-"
    return f"| {case.model} | {case.threads} | {' | '.join(shown)} | {ratio} | {' '.join(told)} |"


def main() -> None:
    """Build everything, measure everything, print as it comes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--models", type=Path)
    parser.add_argument("--limit", type=float, default=460.0, help="seconds for everything")
    parser.add_argument("--duration", type=float, default=1.5, help="seconds per row")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    args = parser.parse_args()
    end = time.monotonic() + args.limit
    cores = cpu_features.usable_cores()
    wanted = [case for case in cases(cores) if args.only in case.name]
    print(f"{cpu_features.model_name()}, {cores} cores", flush=True)
    args.output.mkdir(parents=True, exist_ok=True)
    table = ["| model | threads | ours ms | ONNX Runtime ms | ratio | |", "|---" * 6 + "|"]
    print("\n".join(table), flush=True)
    first = [case for case in wanted if case.model == AT_ALL_COUNTS]
    for batch in (first, [case for case in wanted if case not in first]):
        built: dict[Case, Future[Built]] = {}
        with ThreadPoolExecutor(max(1, min(COMPILING_AT_ONCE, cores // 2))) as pool:
            for case in batch:
                built[case] = pool.submit(build, case, args, end)
        print(f"compiled after {args.limit - (end - time.monotonic()):.0f} s", file=sys.stderr)
        for case, future in built.items():
            table.append(_measured(case, future, end))
            print(table[-1], flush=True)
            (args.output / "table.md").write_text("\n".join(table) + "\n")
    print(f"done after {args.limit - (end - time.monotonic()):.0f} s", file=sys.stderr)
    sys.exit(any("- |" in row for row in table[2:]))


def _measured(case: Case, future: Future[Built], end: float) -> str:
    try:
        with (built := future.result()).held:
            if time.monotonic() > end:
                raise RunError("no time left to measure it")
            return line(case, measure(case, built))
    except TvmscopeError as e:
        return f"| {case.model} | {case.threads} | - | - | - | {e} |"


if __name__ == "__main__":
    main()
