"""How long a session takes to become each document, in a fresh process, and that no TVM is loaded.

    python benchmarks/render.py [SESSION...] [--runs 5] [--limit 3]

Without a session it renders those under docs/. Prints the median wall time of `tvmscope report` per
format; ends with code 1 when a median is over the limit.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = (
    "import sys; from tvmscope.cli.main import main; code = main(sys.argv[1:]); "
    "sys.exit(code or 9 * bool({'tvm', 'torch'} & sys.modules.keys()))"
)
FORMATS = ("html", "markdown", "json", "svg", "csv", "trace", "google-benchmark", "console")


def seconds(session: Path, form: str, runs: int) -> list[float]:
    """Wall times of fresh processes that write the document into a new folder."""
    found = []
    for _ in range(runs):
        with TemporaryDirectory() as folder:
            flags = ["report", str(session), "-f", form, "-o", f"{folder}/document", "-q"]
            start = time.perf_counter()
            subprocess.run([sys.executable, "-c", SCRIPT, *flags], check=True)
            found.append(time.perf_counter() - start)
    return found


def main() -> int:
    """Measure, print, and say whether the promise holds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sessions", nargs="*", type=Path, help="results folders or session files")
    parser.add_argument("--runs", type=int, default=5, help="runs of each")
    parser.add_argument("--limit", type=float, default=3.0, help="seconds that a median may take")
    arguments = parser.parse_args()
    sessions = arguments.sessions or sorted(ROOT.glob("docs/**/*.json.xz"))
    print(f"median of {arguments.runs} runs; load average {os.getloadavg()[0]:.2f}")
    kept = True
    for session in sessions:
        for form in FORMATS:
            times = seconds(session, form, arguments.runs)
            median_s = statistics.median(times)
            kept = kept and median_s < arguments.limit
            spread = f"({min(times):.2f} to {max(times):.2f})"
            print(f"{session.name:20} {form:16} {median_s:.2f} s  {spread}")
    print(f"under {arguments.limit:g} s, neither TVM nor torch loaded: {'yes' if kept else 'NO'}")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
