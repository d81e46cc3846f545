"""Measures compiled models beside ONNX Runtime at several numbers of threads, within a time limit.

    python scripts/cpu_check.py MODELS --output OUT [--limit 300] [--duration 1.5]

All processes of a case run on the same cores, the fastest of the machine at that moment: on a
shared machine a core whose other half is busy elsewhere computes half as fast, and two rows that
ran on different cores could not be compared. `--no-pin` leaves that to the system.

MODELS is a folder that `scripts/cpu_models.py` filled, here or on another machine; TVM's runtime,
onnx, onnxruntime and a C compiler are needed, TVM's compiler is not. Every case is verified and
measured in turns, those that matter most first; then kernels are timed one by one and set beside
ONNX Runtime's. OUT gets table.md, kernels.md, summary.json and the sessions in one archive.
"""

from __future__ import annotations

import argparse
import json
import sys
import tarfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cpu_cores import Cores

from tvmscope.analysis.alignment import align
from tvmscope.analysis.roofline import limits
from tvmscope.backends import all_backends
from tvmscope.benchmark.entry import Entry
from tvmscope.core.comparison import compare
from tvmscope.core.row import RowKey, Variant
from tvmscope.core.session import Session
from tvmscope.core.stats import median_s
from tvmscope.core.target import Target
from tvmscope.errors import Incomparable, TvmscopeError
from tvmscope.machine import cpu_features
from tvmscope.models.folder import read_prepared
from tvmscope.progress import Silent
from tvmscope.runtime.artifact import read, read_kernels
from tvmscope.stages.job import Job, begin
from tvmscope.stages.measure_rows import framework_outputs, measure_rows
from tvmscope.stages.options import Options
from tvmscope.stages.planning.rows import PlannedRow, unbuilt_entry
from tvmscope.stages.profile import profile_entries

OURS, PEER = "tvmscope", "onnxruntime"
FIRST = "resnet50"
"""Measured and profiled before the others."""
_SHOWN = 25


@dataclass(frozen=True)
class Case:
    """An artifact, for one number of threads."""

    artifact: Path

    @property
    def model(self) -> str:
        return self.artifact.parent.name

    @property
    def threads(self) -> int:
        return int(self.artifact.name.removeprefix("threads-"))

    @property
    def name(self) -> str:
        return f"{self.model}-{self.threads}"


def cases(models: Path, cores: int) -> list[Case]:
    """Those that can run here, the most important model first."""
    found = [Case(meta.parent) for meta in models.glob("*/threads-*/meta.json")]
    found = [case for case in found if case.threads <= cores]
    return sorted(found, key=lambda c: (c.model != FIRST, c.model, c.threads))


def started(case: Case, args: argparse.Namespace) -> tuple[Job, list[Entry]]:
    """A job for the case, and the two rows that it races."""
    target = read(case.artifact).target
    options = Options.of(
        threads=case.threads,
        duration_s=args.duration,
        min_rounds=7,
        output=args.output / case.name,
        command="scripts/cpu_check.py",
    )
    ready = read_prepared(case.artifact.parent)
    session = begin(ready.model, options, [target], datetime.now(UTC))
    job = Job(
        ready=ready,
        options=options,
        progress=Silent(),
        folder=args.output / case.name,
        session=replace(session, complete=False),
    )
    job.folder.mkdir(parents=True, exist_ok=True)
    ours, peer = (unbuilt_entry(row, ready, options) for row in _rows(target))
    built = replace(ours.request, artifact=str(case.artifact))
    return job, [replace(ours, request=built), peer]


def _rows(target: Target) -> Iterator[PlannedRow]:
    backends, _ = all_backends()
    for name in (OURS, PEER):
        backend = backends[name]
        variant = Variant(backend=name, family=backend.family, pipeline=backend.compiles)
        key = RowKey.of(variant, target)
        why = backend.unavailable("cpu")
        yield PlannedRow(backend=backend, target=target, key=key, unavailable=why)


def measured(case: Case, args: argparse.Namespace) -> dict[str, Any]:
    """Measure a case; what to say of it in the table."""
    job, entries = started(case, args)
    session = job.keep_measured(
        measure_rows(entries, job.options, framework_outputs(job.ready), Silent())
    )
    job.keep(replace(session, complete=True))
    ours, peer = session.results
    row: dict[str, Any] = {"model": case.model, "threads": case.threads}
    for result in (ours, peer):
        if result.measurement is not None:
            row[result.key.variant.backend] = median_s(result.measurement) * 1e3
        if result.status != "ok":
            row["problem"] = f"{result.key.name}: {result.status} {result.reason or ''}"
    try:
        found = compare(ours, peer)
        row |= {"ratio": found.speedup, "ci95": list(found.ci95)}
    except Incomparable as e:
        row.setdefault("problem", str(e))
    return row


def profiled(case: Case, args: argparse.Namespace) -> Session:
    """Time the kernels of both rows of a case that was measured."""
    job, entries = started(case, args)
    from tvmscope.core.session import load

    job.session = load(job.folder)
    return job.keep_each(profile_entries(job.session, entries, job.options, Silent()))


def kernel_rows(case: Case, session: Session) -> list[dict[str, Any]]:
    """What each group of operators costs both, and how far our kernels are from the roof."""
    ours = next(p for p in session.profiles if p.key.is_ours)
    peer = next((p for p in session.profiles if not p.key.is_ours), None)
    limit = limits(session, ours)
    rules = {ir.name: ir.rule for ir in read_kernels(case.artifact)}
    rows = []
    for group in align(session):
        ops = set(group.source_ops)
        own = [k for k in ours.kernels if ops & set(k.source_ops) or not (ops or k.source_ops)]
        flops = sum(k.flops or 0.0 for k in own)
        spent = group.times_s.get(ours.key)
        least = sum(limit.compute_s(k) or 0.0 for k in own)
        rows.append(
            {
                "operators": list(group.source_ops)[:3],
                "kernels": [k.name for k in own],
                "rules": sorted({str(rules.get(k.name)) for k in own}),
                "mflop": flops / 1e6,
                "ours_us": spent and spent * 1e6,
                "peer_us": peer and _us(group.times_s.get(peer.key)),
                "roof": least / spent if spent and least else None,
            }
        )
    return rows


def _us(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1e6


def kernel_table(case: Case, session: Session, rows: list[dict[str, Any]]) -> list[str]:
    """The rows that lose most against ONNX Runtime, as Markdown."""
    ours = next(p for p in session.profiles if p.key.is_ours)
    roof = limits(session, ours).flops_per_s
    lines = [f"\n## {case.model}, {case.threads} threads", ""]
    for p in session.profiles:
        lines.append(
            f"{p.key.name}: {p.end_to_end_s * 1e3:.3f} ms a run, kernels {p.total_s * 1e3:.3f} ms, "
            f"host {(p.host_s or 0) * 1e3:.3f} ms\n"
        )
    lines.append(f"roof: {roof / 1e9:.0f} GFLOP/s\n" if roof else "roof: unknown\n")
    heavy = [r for r in rows if r["roof"] and r["mflop"] > 1]
    spent = sum(r["ours_us"] for r in heavy)
    if spent:
        share = sum(r["roof"] * r["ours_us"] for r in heavy) / spent
        lines.append(f"kernels over 1 MFLOP: {share:.0%} of the FMA roof, weighted by time\n")
    lines += [
        "| operators | rules | MFLOP | ours us | peer us | lost us | roof |",
        "|---" * 7 + "|",
    ]
    rows = sorted(rows, key=lambda r: (r["peer_us"] or 0.0) - (r["ours_us"] or 0.0))
    for r in rows[:_SHOWN]:
        own, peer = r["ours_us"] or 0.0, r["peer_us"] or 0.0
        share = f"{r['roof']:.0%}" if r["roof"] else ""
        lines.append(
            f"| {', '.join(r['operators'])} ({', '.join(r['kernels'])[:60]}) | "
            f"{', '.join(r['rules'])} | {r['mflop']:.1f} | {own:.0f} | {peer:.0f} | "
            f"{own - peer:.0f} | {share} |"
        )
    return lines


def line(row: dict[str, Any]) -> str:
    """A row of the table."""
    times = [f"{row[name]:.2f}" if name in row else "-" for name in (OURS, PEER)]
    ratio = "-"
    if "ratio" in row:
        low, high = row["ci95"]
        ratio = f"{row['ratio']:.2f}x [{low:.2f}, {high:.2f}]"
    said = row.get("problem", "")
    return f"| {row['model']} | {row['threads']} | {' | '.join(times)} | {ratio} | {said} |"


def pack_sessions(output: Path) -> None:
    """All sessions in one file: what comes back from another machine is few files."""
    with tarfile.open(output / "sessions.tar.xz", "w:xz") as out:
        for session in sorted(output.glob("*/session.json")):
            out.add(session, f"{session.parent.name}/session.json")


def main() -> None:
    """Measure everything, then profile as much as there is time for; save as it comes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", type=Path)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--limit", type=float, default=300.0, help="seconds for everything")
    parser.add_argument("--duration", type=float, default=1.5, help="seconds per row")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--no-pin", action="store_true", help="on any cores")
    args = parser.parse_args()
    began = time.monotonic()
    cores = cpu_features.usable_cores()
    args.cores = None if args.no_pin else Cores()
    machine = f"{cpu_features.model_name()}, {cores} cores"
    wanted = [case for case in cases(args.models, cores) if args.only in case.name]
    args.output.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    table = [machine, "", "| model | threads | ours ms | ONNX Runtime ms | ratio | |"]
    table.append("|---" * 6 + "|")
    print("\n".join(table), flush=True)
    for case in wanted:
        if time.monotonic() - began > args.limit:
            rows.append({"model": case.model, "threads": case.threads, "problem": "no time left"})
        else:
            rows.append(_survived(case, args))
        table.append(line(rows[-1]))
        print(table[-1], flush=True)
        (args.output / "table.md").write_text("\n".join(table) + "\n")
        _save(args.output, machine, rows, {})
    print(f"measured after {time.monotonic() - began:.0f} s", flush=True)
    kernels: dict[str, Any] = {}
    text = [machine]
    for case in _in_order_of_interest(wanted):
        if time.monotonic() - began > args.limit:
            print(f"no time left to profile {case.name}", flush=True)
            continue
        try:
            with _pinned(case, args) as where:
                session = profiled(case, args)
            kernels[case.name] = kernel_rows(case, session)
            text += [*kernel_table(case, session, kernels[case.name]), "", f"measured on {where}"]
        except (TvmscopeError, StopIteration, OSError) as e:
            text.append(f"\n{case.name}: not profiled: {e!r}")
            print(text[-1], flush=True)
        (args.output / "kernels.md").write_text("\n".join(text) + "\n")
        _save(args.output, machine, rows, kernels)
    pack_sessions(args.output)
    print(f"done after {time.monotonic() - began:.0f} s", flush=True)
    sys.exit(any("ratio" not in row for row in rows))


def _in_order_of_interest(wanted: list[Case]) -> list[Case]:
    """The ends of every model's thread counts: one thread first."""
    most = max((case.threads for case in wanted), default=1)
    ends = [case for case in wanted if case.threads in (1, most)]
    return sorted(ends, key=lambda c: (c.model != FIRST, c.threads))


def _pinned(case: Case, args: argparse.Namespace) -> AbstractContextManager[str]:
    return args.cores.fastest(case.threads) if args.cores else nullcontext("any cores")


def _survived(case: Case, args: argparse.Namespace) -> dict[str, Any]:
    try:
        with _pinned(case, args) as where:
            return measured(case, args) | {"where": where}
    except (TvmscopeError, OSError) as e:
        return {"model": case.model, "threads": case.threads, "problem": str(e)}


def _save(output: Path, machine: str, rows: list[dict[str, Any]], kernels: Any) -> None:
    text = json.dumps({"machine": machine, "rows": rows, "kernels": kernels}, indent=1)
    (output / "summary.json").write_text(text)


if __name__ == "__main__":
    main()
