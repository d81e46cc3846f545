"""Everything that needs a GPU, in parts that each have a time limit and leave their own result.

python scripts/gpu_check.py --prepare FOLDER
    makes what the parts need, where there is no GPU: kernels at odd shapes, ResNet-50 for sm_90,
    MobileNetV2 as a file and for sm_90
python scripts/gpu_check.py [-o OUT] [--call 1] [--only tests,memcheck] [--skip peers]
                            [--limit tests=200] [--patience 1] [--budget-s 540] [--brought FOLDER]
                            [--anyway] [--pack FILE]

| part | what it does |
|---|---|
| doctor | what is installed here |
| tests | the tests behind the gpu marker, as junit XML (gpu_tests.py) |
| tests-shared, tests-alone | those that others may run beside, and those that need the GPU alone |
| odd | every template's kernels at odd shapes against numpy (cuda_odd.py) |
| calls | every form of a call of cuBLASLt and cuDNN against numpy (cuda_odd.py) |
| memcheck, synccheck, racecheck | the kernels at odd shapes under compute-sanitizer |
| repeat | 1,000 runs of ResNet-50 in float16 as a CUDA graph: the same bits, no leak |
| tune | ResNet-50 in float16, within 4 minutes, beside what it was before |
| ablate | ResNet-50 in float16: what some optimisations on CUDA are worth |
| same-bits | MobileNetV2's artifact that was brought against one built here (same_bits.py) |
| scatter | YOLOv3 with ScatterND in float16, whole runs with and without the fix (scatter.py) |
| session | ResNet-50 in float16 beside PyTorch, profiled, with its report page |
| sums | in that session: kernels, gaps and edges are the traced run (session_sums.py) |
| gemm | products in float16 beside cuBLAS (gemm.py) |
| peers | ResNet-50 and MiniLM in float16 beside all peers, max-autotune included (cuda_models.py) |
| models | all built-in models beside PyTorch (cuda_models.py) |
| models-tests | those in float16 at batches 1 and 8; tests-shared runs while they load |
| models-checks | the others; the parts from odd to same-bits run while they load |

OUT is $OUT or results/gpu-check: PART.log, and summary.json after each part; a part that runs
beside another one has them in a folder of its own. With --pack FILE all files of up to 4 MiB are
put into that archive after each part. A part gets its limit, --patience times, or what is left of
the budget; the last one gets all that is left. A part is `partly` done if its own budget left no
time for some kernels. Where there is no CUDA device, each part says so and the next one follows;
--anyway runs them nevertheless. --brought takes what --prepare has made elsewhere.

All of it in four calls of nine minutes, after `--prepare gpu` on another machine:

    python scripts/gpu_check.py --brought gpu --budget-s 540 --call 1    # models-tests, racecheck
    python scripts/gpu_check.py --brought gpu --budget-s 540 --call 2    # models-checks and others
    python scripts/gpu_check.py --brought gpu --budget-s 540 --call 3    # tune, session, scatter
    python scripts/gpu_check.py --brought gpu --budget-s 540 --call 4    # ablate, peers, others
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
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
    """`ok`, `partly`, `failed`, `timeout`, `unavailable`, or `skipped` if the budget is spent."""
    seconds: float = 0.0
    said: str = ""
    """Its own summary, or why it did not run."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """Where parts find and leave things."""

    out: Path
    plan: Path
    artifact: Path
    """ResNet-50."""
    file: Path
    """A model with its weights: the same model on both machines."""
    file_artifact: Path
    patience: float = 1.0
    """Limits, so many times: what runs beside measurements stands still while they last."""


Command = list[str]


def tests(which: str, limit_s: float) -> Callable[[Work], Command]:
    """The tests behind the marker, file by file; what is cut off is said before the part's end."""

    def command(work: Work) -> Command:
        script = str(ROOT / "scripts/gpu_tests.py")
        limit = ["--limit-s", str(limit_s * work.patience)]
        output = str(work.out / f"tests-{which}")
        return [sys.executable, script, "--which", which, "-o", output, *limit]

    return command


def odd(work: Work) -> Command:
    """Every template at odd shapes."""
    script, output = str(ROOT / "scripts/cuda_odd.py"), str(work.out / "odd.json")
    return [sys.executable, script, "run", str(work.plan), "-o", output]


def calls(work: Work) -> Command:
    """NVIDIA's libraries at odd shapes."""
    script, output = str(ROOT / "scripts/cuda_odd.py"), str(work.out / "calls.json")
    return [sys.executable, script, "calls", "-o", output]


def sanitized(tool: str, budget_s: float = 120) -> Callable[[Work], Command | str]:
    """Every template at odd shapes under a tool of compute-sanitizer."""

    def command(work: Work) -> Command | str:
        found = sanitizer()
        if found is None:
            return "compute-sanitizer is not here; it comes with the CUDA toolkit"
        script = str(ROOT / "scripts/cuda_odd.py")
        run = [
            sys.executable, script, "run", str(work.plan), "-o", str(work.out / f"{tool}.json"),
            "--budget-s", str(min(budget_s * work.patience, MOST_SANITIZED_S)),
        ]  # fmt: skip
        options = ["--tool", tool, "--error-exitcode", "9", "--print-limit", "50"]
        return [found, *options, "--log-file", str(work.out / f"{tool}.txt"), *run]

    return command


MOST_SANITIZED_S = 150.0


def sanitizer() -> str | None:
    """NVIDIA's tool, on the path or where the toolkit puts it."""
    places = [p for pattern in SANITIZER_PLACES for p in sorted(glob(pattern))]
    return shutil.which("compute-sanitizer") or next(iter(places), None)


def repeat(work: Work) -> Command:
    """Many runs of one artifact."""
    script = str(ROOT / "scripts/repeat_runs.py")
    return [sys.executable, script, str(work.artifact), "-o", str(work.out / "repeat.json")]


MODEL = ("resnet50", "--target", "cuda", "--precision", "float16", "--offline")


def tvmscope(command: str, *options: str) -> Command:
    """A command on ResNet-50."""
    return [sys.executable, "-m", "tvmscope", command, *MODEL, "--force", *options]


def tune(work: Work) -> Command:
    """A search with a database of its own, so that it starts from nothing."""
    database = str(work.out / "tune-records.jsonl")
    return tvmscope("tune", "--budget", "4m", "--db", database, "-o", str(work.out / "tune"))


ABLATED = "records,generated-kernels,tir-schedules,library,dependent-launch,pools-inside,one-graph"


def ablate(work: Work) -> Command:
    """Optimisations off in turn: those that a build on a GPU machine takes part in, or that are
    newer than the table in docs/ablation.md. A build takes about 15 s."""
    return tvmscope(
        "ablate", "--graph", "--only", ABLATED, "--duration", "0.3s",
        "-o", str(work.out / "ablate"), "--export-times", str(work.out / "ablate-times.json"),
    )  # fmt: skip


def same_bits(work: Work) -> Command | str:
    """What was built without a GPU, and what is built here."""
    if not work.file_artifact.is_dir():
        return "no artifact was brought; --prepare makes one on another machine"
    script = str(ROOT / "scripts/same_bits.py")
    output = str(work.out / "same-bits.json")
    return [sys.executable, script, str(work.file_artifact), str(work.out / "built"), "-o", output]


def scatter(work: Work) -> Command:
    """Whole runs with TVM's own scatter and with ours."""
    script = str(ROOT / "benchmarks/scatter.py")
    options = ["--target", "cuda", "--sizes", "416", "--precisions", "float16", "--duration", "1"]
    return [sys.executable, script, *options, "--output", str(work.out / "scatter")]


def session(work: Work) -> Command:
    """A profiled session with its page."""
    return tvmscope(
        "analyze", "--graph", "--backends", "tvmscope,torch,torch-compile", "--duration", "1s",
        "-o", str(work.out / "session"),
    )  # fmt: skip


def sums(work: Work) -> Command | str:
    """The traced runs of that session."""
    if not (work.out / "session" / "session.json").is_file():
        return "the part session has left no session"
    script = str(ROOT / "scripts/session_sums.py")
    output = str(work.out / "sums.json")
    return [sys.executable, script, str(work.out / "session"), "-o", output]


def models(work: Work, cases: Sequence[str], *options: str) -> Command:
    """Models beside PyTorch's rows. Those of all calls have one folder, and with it one table."""
    script = str(ROOT / "benchmarks/cuda_models.py")
    kept = ["--duration", "0.4s", "--jobs", "12", "-o", str(work.out / "models")]
    return [sys.executable, script, *cases, *kept, *options]


RESNET = ("resnet50:float16:1:db=none", "resnet50:bfloat16:1")
HALF = ("all:float16:1", "yolov3@640:float16:1", *RESNET, "all:float16:8")
OTHERS = ("all:float16:32", "all:float32:1", "yolov3@640:float32:1")
CHECKS = ("odd", "calls", "same-bits", "memcheck", "synccheck")
"""Not `repeat`: it looks at the memory of the whole GPU."""
HALF_S, OTHERS_S = 440.0, 350.0
"""For the rows of models; what is left of the part's time is for ending and for the table."""
BESIDE_ENDS_S = 45.0
"""What runs beside must end so much earlier, so that its own summary is written."""


def models_tests(work: Work) -> Command:
    """Most cores are free while models are measured alone, so the tests wait in between only."""
    beside = part_of(work, "tests-shared", "--patience", "1.3")
    return models(work, HALF, "--budget-s", str(HALF_S), "--beside", shlex.join(beside))


def models_checks(work: Work) -> Command:
    """What stands still while models are measured takes longer by the clock."""
    budget = str(OTHERS_S - BESIDE_ENDS_S)
    beside = part_of(work, ",".join(CHECKS), "--patience", "3", "--budget-s", budget)
    return models(work, OTHERS, "--budget-s", str(OTHERS_S), "--beside", shlex.join(beside))


def part_of(work: Work, parts: str, *options: str) -> Command:
    """Parts as a command of their own, with results in a folder of their own."""
    brought = str(work.plan.parent)
    folder = str(work.out / f"beside-{parts.partition(',')[0]}")
    return [
        sys.executable, str(ROOT / "scripts/gpu_check.py"), "--only", parts, "--brought", brought,
        "-o", folder, *options,
    ]  # fmt: skip


def gemm(work: Work) -> Command:
    """Products beside cuBLAS."""
    return [sys.executable, str(ROOT / "benchmarks/gemm.py"), "-o", str(work.out / "gemm")]


def peers(work: Work) -> Command:
    """The best rows of others; the budget leaves time for the table."""
    script = str(ROOT / "benchmarks/cuda_models.py")
    cases = ["resnet50:float16:1", "minilm:float16:1"]
    fixed = ["--every-peer", "--budget-s", "190", "-o", str(work.out / "peers")]
    return [sys.executable, script, *cases, *fixed]


PARTS: dict[str, tuple[float, Callable[[Work], Command | str]]] = {
    "doctor": (60, lambda _: [sys.executable, "-m", "tvmscope", "doctor"]),
    "tests": (330, tests("all", 320)),
    "tests-shared": (330, tests("shared", 320)),
    "tests-alone": (150, tests("alone", 140)),
    "odd": (60, odd),
    "calls": (60, calls),
    "memcheck": (150, sanitized("memcheck")),
    "synccheck": (120, sanitized("synccheck")),
    "racecheck": (60, sanitized("racecheck", 45)),
    "repeat": (60, repeat),
    "tune": (280, tune),
    "ablate": (180, ablate),
    "same-bits": (60, same_bits),
    "scatter": (100, scatter),
    "session": (140, session),
    "sums": (20, sums),
    "gemm": (40, gemm),
    "peers": (210, peers),
    "models": (1200, lambda work: models(work, [*HALF, *OTHERS])),
    "models-tests": (480, models_tests),
    "models-checks": (400, models_checks),
}
"""Seconds at most, and the command; a text says why there is none."""
CALLS = {
    "1": ("models-tests", "racecheck"),
    "2": ("models-checks", "repeat", "gemm"),
    "3": ("tune", "session", "sums", "scatter"),
    "4": ("tests-alone", "ablate", "peers"),
}
"""What fits into nine minutes each."""
OUT_OF_TIME = 3
"""What cuda_odd.py exits with if its budget left no time for some kernels."""
PACKED_BYTES = 4 << 20
LEAST_S = 10.0
"""A part is not begun with less time than this."""
NEEDS_NO_GPU = ("doctor",)


def main() -> int:
    """Run the parts one after the other."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    default = Path(os.environ.get("OUT", "results/gpu-check"))
    parser.add_argument("-o", "--output", type=Path, default=default)
    parser.add_argument("--only", default="", help="parts, joined by commas")
    parser.add_argument("--skip", default="")
    parser.add_argument("--limit", action="append", default=[], metavar="PART=SECONDS")
    parser.add_argument("--patience", type=float, default=1.0, help="limits, so many times")
    parser.add_argument("--call", choices=tuple(CALLS), help="the parts of one of four calls")
    parser.add_argument("--budget-s", type=float, default=float("inf"), help="for all parts")
    parser.add_argument("--prepare", type=Path, metavar="FOLDER", help="make what parts need")
    parser.add_argument("--brought", type=Path, metavar="FOLDER", help="what --prepare made")
    parser.add_argument("--pack", type=Path, metavar="FILE", help="an archive of the results")
    parser.add_argument("--anyway", action="store_true", help="run without a CUDA device, too")
    arguments = parser.parse_args()
    limits = {part: float(s) for part, _, s in (x.partition("=") for x in arguments.limit)}
    wanted = [p for p in arguments.only.split(",") if p]
    wanted = wanted or list(CALLS.get(arguments.call, PARTS))
    wanted = [p for p in wanted if p not in arguments.skip.split(",")]
    if unknown := sorted({*wanted, *limits} - set(PARTS)):
        parser.error(f"no part named {', '.join(unknown)}; there are {', '.join(PARTS)}")
    out = arguments.output.resolve()
    out.mkdir(parents=True, exist_ok=True)
    if arguments.prepare:
        return prepare(work_in(out, arguments.prepare.resolve()))
    brought = arguments.brought.resolve() if arguments.brought else out
    work = replace(work_in(out, brought), patience=arguments.patience)
    problem = None if arguments.anyway else gpu_problem()
    return check(wanted, work, limits, arguments.budget_s, problem, arguments.pack)


def work_in(out: Path, folder: Path) -> Work:
    """Results in one folder, what parts need in another."""
    return Work(
        out=out,
        plan=folder / "odd-kernels",
        artifact=folder / "resnet50",
        file=folder / "mobilenet_v2.onnx",
        file_artifact=folder / "mobilenet_v2",
    )


def gpu_problem() -> str | None:
    """Why no part can use a GPU here, asked of the driver."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "no CUDA device: there is no NVIDIA driver here"
    count = ctypes.c_int()
    code = cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count))
    return None if code == 0 and count.value else f"no CUDA device (CUDA error {code})"


def check(
    parts: list[str],
    work: Work,
    limits: dict[str, float],
    budget_s: float = float("inf"),
    problem: str | None = None,
    archive: Path | None = None,
) -> int:
    """Run and keep a summary; 1 where anything failed."""
    until = time.monotonic() + budget_s
    done: list[Outcome] = []
    for part in parts:
        is_last = part == parts[-1] and budget_s < float("inf")
        left = until - time.monotonic()
        if problem is not None and part not in NEEDS_NO_GPU:
            outcome = Outcome(part=part, status="unavailable", said=problem)
        elif left < LEAST_S:
            outcome = Outcome(part=part, status="skipped", said="the budget is spent")
        else:
            own = left if is_last else PARTS[part][0] * work.patience
            outcome = perform(part, work, min(left, limits.get(part, own)))
        done.append(outcome)
        (work.out / "summary.json").write_text(json.dumps([asdict(o) for o in done], indent=1))
        print(f"{part}: {outcome.status} in {outcome.seconds:.0f} s {outcome.said}", flush=True)
        if archive is not None:
            pack(work.out, archive)
    return int(any(o.status in ("failed", "timeout") for o in done))


def pack(folder: Path, archive: Path) -> None:
    """Put all results but large ones, such as libraries, into an archive."""
    with tarfile.open(archive, "w:xz") as tar:
        for file in sorted(folder.rglob("*")):
            if file.is_file() and file.stat().st_size <= PACKED_BYTES:
                tar.add(file, file.relative_to(folder))


def perform(part: str, work: Work, limit_s: float) -> Outcome:
    """What a part needs and nobody brought, then the part, in one limit."""
    start = time.monotonic()
    for made in (attempt(n, c, limit_s, work) for n, c in missing(part, work)):
        if made.status != "ok":
            said = f"{made.part}: {made.status}: {made.said}"
            return Outcome(part=part, status="failed", seconds=made.seconds, said=said)
    left = max(1.0, limit_s - (time.monotonic() - start))
    return attempt(part, PARTS[part][1](work), left, work)


def missing(part: str, work: Work) -> list[tuple[str, Command]]:
    """The commands that make what a part needs."""
    if part in ("odd", "memcheck", "synccheck", "racecheck") and not work.plan.is_dir():
        return [("odd-kernels", odd_kernels(work))]
    if part == "repeat" and not work.artifact.is_dir():
        return [("compile", artifact("resnet50", work.artifact, "cuda"))]
    if part == "same-bits" and work.file_artifact.is_dir():
        return [("build", artifact(str(work.file), work.out / "built", "cuda"))]
    return []


def odd_kernels(work: Work) -> Command:
    """Kernels of every template."""
    return [sys.executable, str(ROOT / "scripts/cuda_odd.py"), "prepare", str(work.plan)]


def artifact(model: str, folder: Path, target: str) -> Command:
    """A model in float16 as a CUDA graph."""
    options = ["--target", target, "--precision", "float16", "--graph", "--offline", "--force"]
    return [sys.executable, "-m", "tvmscope", "compile", model, *options, "-o", str(folder)]


def prepare(work: Work) -> int:
    """What parts need, made where there is no GPU."""
    work.plan.parent.mkdir(parents=True, exist_ok=True)
    export = [sys.executable, "-m", "tvmscope", "export", work.file_artifact.name, "--offline"]
    commands = {
        "odd-kernels": odd_kernels(work),
        "compile": artifact("resnet50", work.artifact, "cuda:sm_90"),
        "export": [*export, "--output", str(work.file)],
        "compile-file": artifact(str(work.file), work.file_artifact, "cuda:sm_90"),
    }
    made = [attempt(name, command, 3600, work) for name, command in commands.items()]
    for outcome in made:
        print(f"{outcome.part}: {outcome.status} in {outcome.seconds:.0f} s {outcome.said}")
    return int(any(outcome.status != "ok" for outcome in made))


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
            partly = code == OUT_OF_TIME and any(w.endswith("cuda_odd.py") for w in command)
            status = "partly" if partly else "failed" if code else "ok"
        except subprocess.TimeoutExpired:
            end(process)
            status = "timeout"
    return Outcome(
        part=part, status=status, seconds=time.monotonic() - start, said=summary(part, work)
    )


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill a part's command and everything that it has started, in groups of their own, too."""
    import psutil

    started = [process, *psutil.Process(process.pid).children(recursive=True)]
    for each in started:
        with suppress(ProcessLookupError, psutil.NoSuchProcess):
            each.kill()
    process.wait()


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
