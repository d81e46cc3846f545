"""How long `import tvmscope` and `tvmscope --help` take, and that neither loads a heavy library.

    python benchmarks/startup.py [--runs 15] [--limit 0.5]

Prints the median of several runs in fresh processes, beside a bare interpreter's; ends with code 1
when a median is over the limit (meant for an idle machine) or a heavy module is loaded. Last comes
the time until a tuning run's worker can build, beside what it imports as TVM imports it.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

HEAVY = ("tvm", "torch", "onnx", "onnxruntime", "openvino", "transformers", "numpy", "jinja2")
HELP = "import sys; from tvmscope.cli.main import main; main(['--help'])"
SUBJECTS = {
    "python -c pass": ("", (sys.executable, "-c", "pass")),
    "import tvmscope": ("import tvmscope", (sys.executable, "-c", "import tvmscope")),
    "tvmscope --help": (HELP, (str(Path(sys.executable).with_name("tvmscope")), "--help")),
}

TVM_AS_IT_COMES = "import tvm, tvm.s_tir.tensor_intrin"
WORKER = """from tvmscope.runtime import tvm_compat as tvm
tvm.import_tvm(torch=False); tvm.import_tensor_intrinsics()"""
WORKER_LIMIT_S, WORKER_RUNS = 5.0, 3


def times_s(command: Sequence[str], runs: int) -> list[float]:
    """Wall times of fresh processes; a first one, which fills the file cache, is not counted."""
    found = []
    for _ in range(runs + 1):
        start = time.perf_counter()
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        found.append(time.perf_counter() - start)
    return found[1:]


def heavy_modules(code: str) -> list[str]:
    """Which heavy modules a piece of code has loaded when it is done."""
    script = f"{code}\nimport sys; print('LOADED', *({set(HEAVY)} & sys.modules.keys()))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return sorted(done.stdout.rpartition("LOADED")[2].split())


def main() -> int:
    """Measure, print, and say whether the promise holds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=15, help="counted runs of each")
    parser.add_argument("--limit", type=float, default=0.5, help="seconds that a median may take")
    arguments = parser.parse_args()
    kept = True
    print(f"median of {arguments.runs} runs; load average {os.getloadavg()[0]:.2f}")
    for name, (code, command) in SUBJECTS.items():
        measured = times_s(command, arguments.runs)
        median_s, heavy = statistics.median(measured), heavy_modules(code)
        kept = kept and median_s < arguments.limit and not heavy
        loaded = ", ".join(heavy) or "nothing heavy"
        print(
            f"{name:16} {median_s:.3f} s  ({min(measured):.3f} to {max(measured):.3f})  "
            f"loads {loaded}"
        )
    print(f"under {arguments.limit:g} s, nothing heavy loaded: {'yes' if kept else 'NO'}")
    return 0 if kept and workers_start() else 1


def workers_start() -> bool:
    """Print how long a worker takes to start, and whether that is within its limit."""
    print("how long a tuning run's workers take to start (two minutes):", flush=True)
    for name, code in (("TVM as it comes", TVM_AS_IT_COMES), ("a tuning worker", WORKER)):
        median_s = statistics.median(times_s((sys.executable, "-c", code), WORKER_RUNS))
        print(f"{name:16} {median_s:.2f} s  with what MetaSchedule's workers import")
    print(f"a worker under {WORKER_LIMIT_S:g} s: {'yes' if median_s < WORKER_LIMIT_S else 'NO'}")
    return median_s < WORKER_LIMIT_S


if __name__ == "__main__":
    sys.exit(main())
