"""The tests behind the gpu marker, a process for each file: most of their time is compiling.

python scripts/gpu_tests.py [-o OUT] [--limit-s 330] [--only select,peers] [--which shared]

Files whose tests compare times or fill the GPU's memory come after all others, one at a time; they
need the GPU alone. `--which shared` leaves them out, `--which alone` all others. A file's report is
OUT/FILE.xml, its output OUT/FILE.log; what failed is printed at once. Files that the limit cuts off
are said to be, with the tests that they had left.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "tests" / "gpu"
ALONE = ("load_model", "planted", "tune")
"""Parts of the names of files whose tests compare times, or fill the GPU's memory."""
_COUNTS = re.compile(r"(\d+) (passed|failed|error|skipped)")


def main() -> int:
    """Run all files; 1 where a test failed or did not run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("-o", "--output", type=Path, default=Path(os.environ.get("OUT", ".")))
    parser.add_argument("--limit-s", type=float, default=float("inf"))
    parser.add_argument("--only", default="", help="parts of files' names, joined by commas")
    parser.add_argument("--which", choices=("all", "shared", "alone"), default="all")
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    until = time.monotonic() + arguments.limit_s
    wanted = [word for word in arguments.only.split(",") if word]
    files = sorted(FOLDER.glob("test_*.py"))
    files = [f for f in files if not wanted or any(word in f.stem for word in wanted)]
    alone = [f for f in files if any(word in f.stem for word in ALONE)]
    shared = [f for f in files if f not in alone]
    groups = [shared] if arguments.which != "alone" else []
    groups += [[f] for f in alone] if arguments.which != "shared" else []
    counts: dict[str, int] = {}
    for group in groups:
        running = {file: start(file, arguments.output) for file in group}
        for file, process in running.items():
            for what, count in finish(file, process, arguments.output, until).items():
                counts[what] = counts.get(what, 0) + count
    said = ", ".join(f"{counts.get(w, 0)} {w}" for w in ("passed", "failed", "skipped", "cut off"))
    print(said)
    return int(any(counts.get(w) for w in ("failed", "error", "cut off")))


def start(file: Path, output: Path) -> subprocess.Popen[bytes]:
    """Begin a file's tests."""
    command = [
        sys.executable, "-m", "pytest", "-v", "-m", "gpu", "-p", "no:cacheprovider", "-o",
        "addopts=", f"--junitxml={output / file.stem}.xml", "--durations=3", str(file),
    ]  # fmt: skip
    with (output / f"{file.stem}.log").open("w") as log:
        return subprocess.Popen(
            command, stdout=log, stderr=subprocess.STDOUT, cwd=ROOT, start_new_session=True
        )


def finish(
    file: Path, process: subprocess.Popen[bytes], output: Path, until: float
) -> dict[str, int]:
    """Wait for a file's tests and count them."""
    started = time.monotonic()
    cut = ""
    try:
        process.wait(max(1.0, until - started))
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        process.wait()
        cut = ", cut off"
    text = (output / f"{file.stem}.log").read_text(errors="replace")
    if cut:
        counts = {w.lower(): text.count(f" {w}") for w in ("PASSED", "FAILED", "SKIPPED")}
        counts["cut off"] = 1
    else:
        last = (text.splitlines() or [""])[-1]
        counts = {what: int(n) for n, what in _COUNTS.findall(last)}
        if process.returncode and not counts.get("failed") and not counts.get("error"):
            counts["failed"] = 1  # it crashed, so that nothing was counted
    said = ", ".join(f"{n} {what}" for what, n in counts.items() if n)
    print(f"{file.stem}: {said or 'no test'}", flush=True)
    if counts.get("failed") or counts.get("error"):
        print(text[-3000:], flush=True)
    return counts


if __name__ == "__main__":
    sys.exit(main())
