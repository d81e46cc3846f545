"""Tries fixes on the built-in models, from starts that users really have, and lists what became.

python benchmarks/calibration.py [--only resnet18] [--duration 2] [--results DIR] [--fresh]

Each start is a session in the results folder; those that are there already are not measured again,
so that a run that was cut off goes on where it was. The table goes to docs/calibration.md.
"""

from __future__ import annotations

import argparse
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tvmscope
from tvmscope.core.diagnosis.findings import CLOSE, Attempt, hits
from tvmscope.core.session import Session, load
from tvmscope.errors import SchemaError, TvmscopeError
from tvmscope.quantities import format_s
from tvmscope.storage.files import write_text_atomic
from tvmscope.workflow.examining.doctor import measure_roofs

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "calibration.md"
PEER = "onnxruntime"
"""Its times for the same operators are part of the estimates."""
STARTS: dict[str, tuple[str, dict[str, Any]]] = {
    "tvm": ("TVM's own pipeline", {"pipeline": "tvm"}),
    "generic": ("target cpu:x86-64", {"target": "cpu:x86-64"}),
    "thread": ("one thread", {"threads": 1}),
    "winograd": ("Winograd off", {"overrides": {"winograd": False}}),
    "layout": ("block-layout off", {"disabled_passes": ("block-layout",)}),
    "fusion": ("fuse-ops, fuse-tir off", {"disabled_passes": ("fuse-ops", "fuse-tir")}),
    "matmul": ("pack-matmul off", {"disabled_passes": ("pack-matmul",)}),
    "math": ("fast-math off", {"disabled_passes": ("fast-math",)}),
    "attention": ("fuse-attention off", {"disabled_passes": ("fuse-attention",)}),
}


@dataclass(frozen=True)
class Case:
    """A model and how it is started."""

    model: str
    start: str

    @property
    def name(self) -> str:
        return f"{self.model}-{self.start}"


CASES = tuple(
    Case(model, start)
    for start, models in {
        "tvm": ("resnet18", "mobilenet_v2", "minilm"),
        "generic": ("resnet50", "efficientnet_lite0", "minilm"),
        "thread": ("resnet18", "minilm", "yolov4_tiny"),
        "winograd": ("resnet50", "yolov3_tiny"),
        "layout": ("resnet18", "efficientnet_lite0"),
        "fusion": ("resnet50", "mobilenet_v2"),
        "matmul": ("minilm", "vit_b_16"),
        "math": ("minilm",),
        "attention": ("minilm",),
    }.items()
    for model in models
)


def main() -> None:
    """Measure what is missing, then write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--duration", type=float, default=2.0, help="seconds per row")
    parser.add_argument("--results", type=Path, default=Path("results/calibration"))
    parser.add_argument("--fresh", action="store_true", help="measure again what is there")
    parser.add_argument("--document", type=Path, default=DOCUMENT)
    args = parser.parse_args()
    chosen = [case for case in CASES if args.only in case.name]
    if any(args.fresh or _finished(args.results / case.name) is None for case in chosen):
        measure_roofs()  # those in the cache may be from a busy minute
    for number, case in enumerate(chosen, 1):
        folder = args.results / case.name
        if args.fresh:
            shutil.rmtree(folder, ignore_errors=True)
        if _finished(folder) is None:
            print(f"[{number}/{len(chosen)}] {case.name} ...", flush=True)
            _measure(case, folder, args.duration)
        session = _finished(folder)
        for line in _lines(case, session) if session else ():
            print(f"[{number}/{len(chosen)}] {' | '.join(line)}", flush=True)
    done = {case: s for case in CASES if (s := _finished(args.results / case.name))}
    if done:
        command = f"python benchmarks/calibration.py --duration {args.duration:g}"
        write_text_atomic(args.document, _document(done, command))
        print(_verdict(done))


def _measure(case: Case, folder: Path, duration_s: float) -> None:
    start = time.perf_counter()
    try:
        tvmscope.analyze(
            case.model,
            **{"target": "cpu", **STARTS[case.start][1]},
            backends=("tvmscope", PEER),
            fix=True,
            offline=True,
            duration_s=duration_s,
            output=folder,
            force=True,
        )
    except TvmscopeError as e:
        print(f"  {case.name}: {e}", flush=True)
    shutil.rmtree(folder / "artifacts", ignore_errors=True)  # they carry the weights
    print(f"  {time.perf_counter() - start:.0f} s", flush=True)


def _finished(folder: Path) -> Session | None:
    try:
        session = load(folder)
    except SchemaError:
        return None
    return session if session.complete else None


def _lines(case: Case, session: Session) -> list[tuple[str, ...]]:
    """A line per attempt; one that says so where no rule offered a fix."""
    head = (case.model, STARTS[case.start][0])
    if not session.fixes:
        return [(*head, "no rule offered a fix", "-", "-", "-", "-", "-", "-")]
    return [(*head, *_cells(attempt)) for attempt in session.fixes]


def _cells(attempt: Attempt) -> tuple[str, ...]:
    predicted, achieved = attempt.predicted_s, attempt.achieved_s
    interval = "-"
    if attempt.ci95_s is not None:
        interval = " to ".join(
            format_s(t) if t >= 0 else f"-{format_s(-t)}" for t in attempt.ci95_s
        )
    close = {True: "yes", False: "no", None: "-"}[attempt.close]
    ratio = f"{predicted / achieved:.2f}" if predicted is not None and achieved else "-"
    shown = "-" if achieved is None else format_s(abs(achieved))
    sign = "-" if achieved is not None and achieved < 0 else ""
    return (
        attempt.rule, format_s(predicted), sign + shown, interval, ratio, close,
        f"{attempt.outcome}: {attempt.reason}",
    )  # fmt: skip


def _verdict(done: dict[Case, Session]) -> str:
    close, count = hits([a for session in done.values() for a in session.fixes])
    share = f" ({close / count:.0%})" if count else ""
    return (
        f"{count} predictions could be checked; {close} are within {CLOSE:.0%} of what was "
        f"achieved{share}."
    )


def _document(done: dict[Case, Session], command: str) -> str:
    dates = sorted(session.started[:10] for session in done.values())
    here = next(iter(done.values())).environment
    versions = ", ".join(
        f"{k} {here.versions[k]}" for k in ("apache-tvm", PEER) if k in here.versions
    )
    head = ("model", "start", "rule", "predicted", "achieved", "95 % interval", "ratio",
            f"within {CLOSE:.0%}", "outcome")  # fmt: skip
    rows = [head, ("---",) * len(head)]
    rows += [line for case, session in done.items() for line in _lines(case, session)]
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    loads = [s.environment.load for s in done.values() if s.environment.load is not None]
    return f"""# How good the predicted savings are

Written by `{command}` · {here.cpu}, {here.cores} cores,
{versions} · {dates[0]} to {dates[-1]} · load average before the cases
{min(loads, default=0):.1f} to {max(loads, default=0):.1f}

Every fix that `tvmscope analyze MODEL --fix` tried on built-in models, each from a start that
leaves something to win. A prediction is saved before its fix is built; what was achieved comes from
measuring the row with and without the fix in turns. The ratio is predicted over achieved.

**{_verdict(done)}**

{table}

The estimates rest on the session's own numbers: kernel times, the machine's roofs, and
{PEER}'s times for the same operators. Three kinds of constants come from elsewhere, and none was
fitted to this table: the shares of the roofs that kernels reach (`diagnose/estimate.py`; from the
single kernels and ResNet-50's profile in benchmarks.md, so that ResNet-50 has been seen), the
compiler's cost model of Winograd convolutions (`analysis/winograd.py`; chosen on single layers) and
the thresholds of the rules.
"""


if __name__ == "__main__":
    main()
