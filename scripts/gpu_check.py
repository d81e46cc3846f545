"""Everything that needs a GPU, in parts that each have a time limit and leave their own result.

python scripts/gpu_check.py [-o OUT] [--only tests,memcheck] [--skip models] [--limit tests=200]
                            [--plan FOLDER] [--artifact FOLDER]

| part | what it does |
|---|---|
| doctor | what is installed here |
| tests | the tests behind the gpu marker, as junit XML (pytest) |
| odd | every template's kernels at odd shapes against numpy (cuda_odd.py) |
| memcheck, synccheck, racecheck | the same under compute-sanitizer |
| repeat | 1,000 runs of ResNet-50 in float16 as a CUDA graph: the same bits, no leak |
| models | compile, verify and bench three models in both precisions (gpu_check.sh) |

OUT is $OUT or results/gpu-check: PART.log, and summary.json after each part. --plan takes kernels
that `cuda_odd.py prepare` compiled elsewhere, --artifact a compiled model for `repeat`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from glob import glob
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SANITIZER_PLACES = ("/usr/local/cuda*/bin/compute-sanitizer", "/opt/cuda*/bin/compute-sanitizer")
_SUMMARY = re.compile(r"(?:ERROR|RACECHECK) SUMMARY: .*|\d+ (?:passed|failed).*|\d+ kernels of .*")


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of a part."""

    part: str
    status: str
    """`ok`, `failed`, `timeout` or `unavailable`."""
    seconds: float = 0.0
    said: str = ""
    """Its own summary, or why it did not run."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """Where parts find and leave things."""

    out: Path
    plan: Path
    artifact: Path


Command = list[str]


def tests(work: Work) -> Command:
    """The tests behind the marker."""
    return [
        sys.executable, "-m", "pytest", "-q", "-m", "gpu", "-p", "no:cacheprovider",
        "-o", "addopts=", f"--junitxml={work.out / 'tests.xml'}", "--durations=10", "tests/gpu",
    ]  # fmt: skip


def odd(work: Work) -> Command:
    """Every template at odd shapes."""
    script, output = str(ROOT / "scripts/cuda_odd.py"), str(work.out / "odd.json")
    return [sys.executable, script, "run", str(work.plan), "-o", output]


def sanitized(tool: str) -> Callable[[Work], Command | str]:
    """The same under a tool of compute-sanitizer."""

    def command(work: Work) -> Command | str:
        found = sanitizer()
        if found is None:
            return "compute-sanitizer is not here; it comes with the CUDA toolkit"
        script = str(ROOT / "scripts/cuda_odd.py")
        run = [sys.executable, script, "run", str(work.plan), "-o", str(work.out / f"{tool}.json")]
        options = ["--tool", tool, "--error-exitcode", "9", "--print-limit", "50"]
        return [found, *options, "--log-file", str(work.out / f"{tool}.txt"), *run]

    return command


def sanitizer() -> str | None:
    """NVIDIA's tool, on the path or where the toolkit puts it."""
    places = [p for pattern in SANITIZER_PLACES for p in sorted(glob(pattern))]
    return shutil.which("compute-sanitizer") or next(iter(places), None)


def repeat(work: Work) -> Command:
    """Many runs of one artifact."""
    script = str(ROOT / "scripts/repeat_runs.py")
    return [sys.executable, script, str(work.artifact), "-o", str(work.out / "repeat.json")]


PARTS: dict[str, tuple[float, Callable[[Work], Command | str]]] = {
    "doctor": (60, lambda _: [sys.executable, "-m", "tvmscope", "doctor"]),
    "tests": (400, tests),
    "odd": (60, odd),
    "memcheck": (150, sanitized("memcheck")),
    "synccheck": (120, sanitized("synccheck")),
    "racecheck": (180, sanitized("racecheck")),
    "repeat": (120, repeat),
    "models": (420, lambda w: ["bash", str(ROOT / "scripts/gpu_check.sh"), str(w.out / "models")]),
}
"""Seconds at most, and the command; a text says why there is none."""


def main() -> int:
    """Run the parts one after the other."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    default = Path(os.environ.get("OUT", "results/gpu-check"))
    parser.add_argument("-o", "--output", type=Path, default=default)
    parser.add_argument("--only", default="", help="parts, joined by commas")
    parser.add_argument("--skip", default="")
    parser.add_argument("--limit", action="append", default=[], metavar="PART=SECONDS")
    parser.add_argument("--plan", type=Path, default=None)
    parser.add_argument("--artifact", type=Path, default=None)
    arguments = parser.parse_args()
    limits = {part: float(s) for part, _, s in (x.partition("=") for x in arguments.limit)}
    wanted = [p for p in arguments.only.split(",") if p] or list(PARTS)
    wanted = [p for p in wanted if p not in arguments.skip.split(",")]
    if unknown := sorted({*wanted, *limits} - set(PARTS)):
        parser.error(f"no part named {', '.join(unknown)}; there are {', '.join(PARTS)}")
    out = arguments.output.resolve()
    out.mkdir(parents=True, exist_ok=True)
    work = Work(
        out=out,
        plan=arguments.plan or out / "odd-kernels",
        artifact=arguments.artifact or out / "resnet50",
    )
    return check(wanted, work, limits)


def check(parts: list[str], work: Work, limits: dict[str, float]) -> int:
    """Run and keep a summary; 1 where anything failed."""
    done: list[Outcome] = []
    for part in parts:
        limit, command = PARTS[part]
        outcome = prepared(part, work) or attempt(
            part, command(work), limits.get(part, limit), work
        )
        done.append(outcome)
        (work.out / "summary.json").write_text(json.dumps([asdict(o) for o in done], indent=1))
        print(f"{part}: {outcome.status} in {outcome.seconds:.0f} s {outcome.said}", flush=True)
    return int(any(o.status in ("failed", "timeout") for o in done))


def prepared(part: str, work: Work) -> Outcome | None:
    """Make what a part needs and nobody brought; why that failed, or nothing."""
    if part in ("odd", "memcheck", "synccheck", "racecheck") and not work.plan.is_dir():
        script = str(ROOT / "scripts/cuda_odd.py")
        made = attempt("prepare", [sys.executable, script, "prepare", str(work.plan)], 300, work)
    elif part == "repeat" and not work.artifact.is_dir():
        options = ["--target", "cuda", "--precision", "float16", "--graph"]
        command = [sys.executable, "-m", "tvmscope", "compile", "resnet50", *options]
        made = attempt("compile", [*command, "-o", str(work.artifact)], 300, work)
    else:
        return None
    if made.status == "ok":
        return None
    return Outcome(part=part, status="failed", said=f"{made.part}: {made.status}: {made.said}")


def attempt(part: str, command: Command | str, limit_s: float, work: Work) -> Outcome:
    """Run a command in a group of its own, which ends with its time."""
    if isinstance(command, str):
        return Outcome(part=part, status="unavailable", said=command)
    path = os.pathsep.join(
        (str(ROOT / "src"), str(ROOT / "tests"), os.environ.get("PYTHONPATH", ""))
    )
    env = os.environ | {"PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}
    start = time.monotonic()
    log = work.out / f"{part}.log"
    with log.open("w") as stream:
        process = subprocess.Popen(
            command, stdout=stream, stderr=subprocess.STDOUT, cwd=ROOT, env=env,
            start_new_session=True,
        )  # fmt: skip
        try:
            code = process.wait(timeout=limit_s)
            status = "ok" if code == 0 else "failed"
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            status = "timeout"
    return Outcome(
        part=part, status=status, seconds=time.monotonic() - start, said=summary(part, work)
    )


def summary(part: str, work: Work) -> str:
    """The last line of a part's own that sums it up, else its last line."""
    lines: list[str] = []
    for name in (f"{part}.txt", f"{part}.log"):
        file = work.out / name
        if file.is_file():
            lines += file.read_text(errors="replace").splitlines()
    said = [found.group() for line in lines if (found := _SUMMARY.search(line))]
    if said:
        return "; ".join(dict.fromkeys(said))[:300]
    return next((line.strip()[:300] for line in reversed(lines) if line.strip()), "")


if __name__ == "__main__":
    sys.exit(main())
