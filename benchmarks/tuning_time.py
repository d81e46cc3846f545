"""How much of a long search's result a short one reaches, on this machine.

    python benchmarks/tuning_time.py [MODEL] [--short 2m] [--long 10m] [--threads N]
                                     [--records FILE] [-o FOLDER]

Tunes the model twice, each time with records of its own, then compiles it with the records of
either and without any, and measures the three artifacts in turns. `--records` gives both searches
the records of another machine to begin with. The folder keeps records, sessions and table.md.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

from tvmscope.machine import cpu_features


def tvmscope(*words: str, log: Path) -> float:
    """Run a command; its output goes to the log. Return its seconds."""
    start = time.monotonic()
    with log.open("a") as stream:
        subprocess.run(
            [sys.executable, "-m", "tvmscope", *words], check=True, stdout=stream, stderr=stream
        )
    return time.monotonic() - start


def tuned(args: argparse.Namespace, name: str, budget: str) -> tuple[Path, float]:
    """Tune within a budget; return the artifact, and how long the search took."""
    records, log = args.output / f"{name}.jsonl", args.output / f"{name}.log"
    if args.records:
        shutil.copy(args.records, records)
    shared = (
        args.model,
        "--target",
        "cpu",
        "--offline",
        "--threads",
        str(args.threads),
        "--db",
        str(records),
    )
    session = ("--force", "-o", str(args.output / f"{name}-session"))
    took = tvmscope("tune", *shared, "--budget", budget, *session, log=log)
    return compiled(args, name, str(records)), took


def compiled(args: argparse.Namespace, name: str, db: str) -> Path:
    """Compile the model with some records."""
    folder = args.output / f"{name}-artifact"
    words = (args.model, "--target", "cpu", "--offline", "--threads", str(args.threads), "--db", db)
    tvmscope("compile", *words, "--force", "-o", str(folder), log=args.output / f"{name}.log")
    return folder


def raced(args: argparse.Namespace, before: Path, after: Path) -> str:
    """How many times as fast the second artifact is, measured in turns with the first."""
    run = subprocess.run(
        [
            sys.executable, "-m", "tvmscope", "compare", str(before), str(after), "--json",
            "--threads", str(args.threads), "--duration", args.duration,
        ],
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    try:
        (change,) = json.loads(run.stdout)["rows"]
    except (ValueError, KeyError) as e:
        raise SystemExit(f"no comparison: {run.stderr[-300:] or run.stdout[-300:]}") from e
    low, high = change["ci95"]
    return f"{change['speedup']:.3f}x [{low:.3f}, {high:.3f}]"


def main() -> None:
    """Tune, compile, race, and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", nargs="?", default="resnet50")
    parser.add_argument("--short", default="2m")
    parser.add_argument("--long", default="10m")
    parser.add_argument("--threads", type=int, default=cpu_features.usable_cores())
    parser.add_argument("--duration", default="6s", help="of each comparison")
    parser.add_argument("--records", type=Path, help="records of another machine")
    parser.add_argument("-o", "--output", type=Path, default=Path("results/tuning-time"))
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    plain = compiled(args, "untuned", "none")
    short, short_s = tuned(args, "short", args.short)
    long, long_s = tuned(args, "long", args.long)
    lines = [
        f"{args.model}, {args.threads} threads, {cpu_features.model_name()}",
        f"searches took {short_s:.0f} s and {long_s:.0f} s\n",
        "| comparison, in turns | speed-up |",
        "|---|---|",
        f"| untuned, then {args.short} | {raced(args, plain, short)} |",
        f"| untuned, then {args.long} | {raced(args, plain, long)} |",
        f"| {args.long}, then {args.short} | {raced(args, long, short)} |",
    ]
    (args.output / "table.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
