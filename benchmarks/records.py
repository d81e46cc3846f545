"""How fast the tuning database answers, and in how much memory.

    python benchmarks/records.py [--records 100000] [--gigabytes 1]

Writes files of ordinary records into a temporary folder, then asks each question in a fresh
process: its time and the most memory that it took over a process that only imports the database.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from tvmscope.core.target import Target
from tvmscope.core.tuning import Candidate, Trial
from tvmscope.machine.cpu_features import X86_FLAGS
from tvmscope.tuning.records import upkeep
from tvmscope.tuning.records.database import Database, append, read
from tvmscope.tuning.records.lines import to_line
from tvmscope.tuning.records.matching import Host, choose

WORKLOADS = 200
TARGET = Target(kind="llvm", arch="znver4", features=tuple(X86_FLAGS)[:28], cores=2)
HOST = Host(target=TARGET, threads=2, tvm="0.27.0.post1", cpu="a CPU")


def workload(number: int) -> str:
    """A name as the tuner gives them."""
    return f"conv2d 1x{64 + number}x56x56 {64 + number}x64x3x3 stride 1 pad 1 float32"


def record(number: int) -> Trial:
    """Every hundredth one is validated."""
    search = Trial(
        workload=workload(number % WORKLOADS),
        candidate=Candidate(params={"tile": number // WORKLOADS, "block": 32, "layout": "NCHW16c"}),
        target=TARGET,
        threads=2,
        status="ok",
        seconds=tuple(1e-3 + (number % 977 + i) * 1e-7 for i in range(5)),
        tvm=HOST.tvm,
        cpu=HOST.cpu,
        date="2026-11-15T10:00:00Z",
        seed=0,
    )
    if number // WORKLOADS % 100:
        return search
    return replace(search, stage="validated", baseline_s=(1.3e-3,) * 5)


def write(file: Path, records: int) -> None:
    """A file of so many records."""
    with file.open("wb") as stream:
        stream.writelines(to_line(record(n)) for n in range(records))


def enlarge(small: Path, file: Path, size: int) -> None:
    """A file of at least that size, by repetition."""
    data = small.read_bytes()
    with file.open("wb") as stream:
        for _ in range(size // len(data) + 1):
            stream.write(data)


def ask_again(file: Path) -> str:
    """A second query on an open database, after one more record was appended."""
    database = Database(file)
    choose([database], HOST)
    append(file, record(1))
    start = time.perf_counter()
    count = len(database.tried(workload(1), TARGET, 2))
    print(json.dumps({"seconds": time.perf_counter() - start}))
    return f"{count} candidates"


def append_some(file: Path) -> str:
    """Single appends, each of which is on the disk when it returns."""
    start = time.perf_counter()
    for number in range(200):
        append(file, record(number))
    print(json.dumps({"seconds": (time.perf_counter() - start) / 200}))
    return "each, synced to disk"


QUESTIONS: dict[str, Callable[[Path], str]] = {
    "choices for all workloads": lambda f: f"{len(choose([Database(f)], HOST).choices)} choices",
    "choices for 24 workloads": lambda f: (
        str(len(choose([Database(f)], HOST, [workload(n) for n in range(24)]).choices)) + " choices"
    ),
    "candidates tried of one": lambda f: f"{len(Database(f).tried(workload(1), TARGET, 2))} ids",
    "the same, already open": ask_again,
    "append one": append_some,
    "read every record": lambda f: f"{sum(1 for _ in read(f))} records",
    "summary (db list)": lambda f: f"{len(upkeep.summarize(read(f)))} rows",
    "db verify": lambda f: f"{upkeep.verify(f).records} records",
}
LARGE = ("choices for all workloads", "candidates tried of one", "read every record")


def answer(question: str, file: Path) -> None:
    """In the child: ask, and print the time, the memory and the answer as JSON lines."""
    before = memory_bytes("VmRSS")
    start, cpu = time.perf_counter(), time.process_time()
    said = QUESTIONS[question](file)
    seconds = time.perf_counter() - start
    added = max(0, memory_bytes("VmHWM") - before)
    print(
        json.dumps(
            {
                "total_s": seconds,
                "cpu_s": time.process_time() - cpu,
                "added_bytes": added,
                "said": said,
            }
        )
    )


def memory_bytes(field: str) -> int:
    """A field of this process's status."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(field))) << 10


def ask(question: str, file: Path) -> None:
    """Ask in a fresh process and print a row."""
    command = (sys.executable, __file__, "--ask", question, str(file))
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, float | str] = {}
    for line in done.stdout.splitlines():
        found |= json.loads(line)
    seconds = float(found.get("seconds", found["total_s"]))
    time_text = f"{seconds:.2f} s" if seconds >= 0.1 else f"{seconds * 1e3:.2f} ms"
    memory = f"{float(found['added_bytes']) / 2**20:.0f} MiB"
    size = f"{file.stat().st_size / 1e6:.0f} MB"
    row = (size, question, time_text, f"{found['cpu_s']:.2f} s", memory, found["said"])
    print(f"| {' | '.join(map(str, row))} |", flush=True)


def main() -> None:
    """Measure, then print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--ask", nargs=2, metavar=("QUESTION", "FILE"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.ask:
        return answer(args.ask[0], Path(args.ask[1]))
    print(f"{args.records} records of {WORKLOADS} workloads; load {os.getloadavg()[0]:.2f}\n")
    print("| file | question | time | CPU time in all | memory added | answer |")
    print("|---|---|---|---|---|---|")
    with TemporaryDirectory() as folder:
        small, large = Path(folder) / "small.jsonl", Path(folder) / "large.jsonl"
        write(small, args.records)
        for question in QUESTIONS:
            ask(question, small)
        enlarge(small, large, int(args.gigabytes * 1e9))
        for question in LARGE:
            ask(question, large)
    return None


if __name__ == "__main__":
    main()
