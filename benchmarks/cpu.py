"""All built-in models on every CPU backend, interleaved: ratios with intervals and their mean.

python benchmarks/cpu.py [--models resnet50,minilm] [--duration 8s] [--threads N] [--batch N]
                         [--db RECORDS: the tuned models, beside the untuned ones]
"""

from __future__ import annotations

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory

import tvmscope
from tvmscope.core.session import Session
from tvmscope.core.stats import geometric_mean, median_s
from tvmscope.models.catalog import built_ins
from tvmscope.parsing import parse_duration_s
from tvmscope.quantities import format_s

PEERS = ("torch", "torch-compile", "onnxruntime", "openvino")


def main() -> None:
    """Measure, then print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default=",".join(sorted(built_ins())))
    parser.add_argument("--duration", default="8s")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--batch", type=int)
    parser.add_argument("--db", help="tuning records")
    parser.add_argument("--with-tvm", action="store_true", help="also the wheel's own pipeline")
    args = parser.parse_args()
    ours = ("tvmscope-tuned", "tvmscope") if args.db else ("tvmscope",)
    backends = (*ours, *PEERS, *(("tvm",) if args.with_tvm else ()))
    print(f"| model | {' | '.join(backends)} | against the best peer |")
    print("|---" * (len(backends) + 2) + "|")
    best = []
    for name in args.models.split(","):
        with TemporaryDirectory() as folder:
            session = tvmscope.bench(
                name,
                target="cpu",
                # the untuned row first: a later row of ours is set against it
                backends=sorted(backends, key=lambda name: name != "tvmscope"),
                duration_s=parse_duration_s(args.duration),
                threads=args.threads,
                batch_size=args.batch,
                db=args.db,
                output=Path(folder) / "session",
            )
        best.append(_row(name, session, backends))
    known = [ratio for ratio in best if ratio is not None]
    if known:
        mean = geometric_mean(known)
        print(f"\ngeometric mean against the best peer over {len(known)} models: {mean:.2f}x")


def _row(name: str, session: Session, backends: tuple[str, ...]) -> float | None:
    """Print one model's line; returns its speed-up over the fastest peer."""
    times = {
        r.task.variant.backend: median_s(r.measurement)
        for r in session.results
        if r.status == "ok" and r.measurement is not None
    }
    ratios = {c.against.name: c for c in session.comparisons if c.key.name == backends[0]}
    cells = []
    for backend in backends[1:]:
        found = ratios.get(backend)
        if found is None:
            reason = next(r.reason for r in session.results if r.task.variant.backend == backend)
            cells.append(reason or "-")
            continue
        interval = f" [{found.ci95[0]:.2f}, {found.ci95[1]:.2f}]" if found.ci95 else ""
        cells.append(f"{found.speedup:.2f}x{interval}")
    peers = [p for p in PEERS if p in times and p in ratios]
    fastest = min(peers, key=lambda p: times[p]) if peers else None
    verdict = f"{ratios[fastest].speedup:.2f}x {fastest}" if fastest else "-"
    print(
        f"| {name} | {format_s(times.get(backends[0]))} | {' | '.join(cells)} | {verdict} |",
        flush=True,
    )
    return ratios[fastest].speedup if fastest else None


if __name__ == "__main__":
    main()
