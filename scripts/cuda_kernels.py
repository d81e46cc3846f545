"""Compile candidates for units here, check and time them on a machine with a GPU.

python scripts/cuda_kernels.py prepare UNITS.json FOLDER [--best 25] [--arch sm_90] [--limit-mb 55]
    compiles the cost model's best configurations of each unit into FOLDER; needs Triton, no GPU;
    with --winners FILE those of measured winners alone, with --outdated the ones among them whose
    template has changed since
python scripts/cuda_kernels.py run FOLDER... -o OUT [--budget-s 540]
    checks each candidate against PyTorch and times it, beside the first algorithms that cuBLASLt
    and cuDNN propose (where their calls compute the unit) and PyTorch's own kernel; needs torch and
    a GPU
python scripts/cuda_kernels.py both UNITS.json -o OUT [--best 25] [--budget-s 540]
    both on the machine with the GPU: one part of the units is compiled while another is timed
python scripts/cuda_kernels.py show RECORDS.jsonl...
    the best candidate of each unit beside the library and the cost model's first choice
python scripts/cuda_kernels.py distil RECORDS.jsonl... -o FILE
    the winners alone, as `tvmscope.cuda.winners` reads them; --onto FILE keeps that file's others

A measuring process that crashes or hangs costs one candidate: another goes on behind it.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))
sys.path.insert(0, str(ROOT / "scripts"))

from tvmscope.cuda import config as configs  # noqa: E402
from tvmscope.cuda import units as unit_types  # noqa: E402
from tvmscope.cuda.candidates import read_candidates, write_candidates  # noqa: E402
from tvmscope.cuda.cost import Estimate, estimate  # noqa: E402
from tvmscope.cuda.cubins.compile_pool import Failure, Job, Outcome, compile_many  # noqa: E402
from tvmscope.cuda.gpus import gpu_of  # noqa: E402
from tvmscope.cuda.library.call import why_not  # noqa: E402
from tvmscope.cuda.shortlist import best  # noqa: E402
from tvmscope.cuda.winners import Winners, distil, load_winners  # noqa: E402

HANG_S = 60.0


def main() -> None:
    """Parse and go."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("prepare")
    one.add_argument("units", type=Path, help="a JSON list of units, or of {unit, config} entries")
    one.add_argument("folder", type=Path)
    one.add_argument("--best", type=int, default=25, help="candidates per unit")
    one.add_argument("--arch", default="sm_90")
    one.add_argument("--workers", type=int, default=None)
    one.add_argument("--timeout-s", type=float, default=60.0)
    one.add_argument("--limit-mb", type=float, default=55.0)
    one.add_argument("--only", default="", help="only units in whose label this text occurs")
    one.add_argument(
        "--callable", nargs="?", const="", choices=("", *configs.LIBRARIES),
        help="only units that a library computes, or that this one computes",
    )  # fmt: skip
    one.add_argument("--winners", type=Path, help="only these winners, as they are")
    one.add_argument("--outdated", action="store_true", help="only winners of older templates")
    one = commands.add_parser("run")
    one.add_argument("folders", type=Path, nargs="+")
    one.add_argument("-o", "--output", type=Path, default=Path(os.environ.get("OUT", ".")))
    one.add_argument("--budget-s", type=float, default=540.0)
    one.add_argument("--no-library", action="store_true")
    one.add_argument("--check-only", action="store_true", help="no timing: for compute-sanitizer")
    one.add_argument("--worker-from", type=int, default=None, help=argparse.SUPPRESS)
    one = commands.add_parser("both")
    one.add_argument("units", type=Path)
    one.add_argument("-o", "--output", type=Path, required=True)
    one.add_argument("--best", type=int, default=25, help="candidates per unit")
    one.add_argument("--arch", default="sm_90")
    one.add_argument("--budget-s", type=float, default=540.0)
    one.add_argument("--part", type=int, default=30, help="units that are compiled together")
    one = commands.add_parser("show")
    one.add_argument("records", type=Path, nargs="+")
    one = commands.add_parser("distil")
    one.add_argument("records", type=Path, nargs="+")
    one.add_argument("-o", "--output", type=Path, required=True)
    one.add_argument("--onto", type=Path, help="winners that stay, where there are no newer ones")
    arguments = parser.parse_args()
    verbs = {"prepare": prepare, "run": run, "both": both, "show": show, "distil": keep_winners}
    verbs[arguments.command](arguments)


def read_units(file: Path) -> dict[unit_types.Unit, list[configs.Config]]:
    """Units of a JSON list, each with the configurations that it is given with."""
    out: dict[unit_types.Unit, list[configs.Config]] = {}
    for entry in json.loads(file.read_text()):
        given = out.setdefault(unit_types.from_json(entry.get("unit", entry)), [])
        given += [configs.from_json(entry["config"])] if "config" in entry else []
    return out


def prepare(arguments: argparse.Namespace) -> None:
    """Compile the best candidates of every unit, or those given with it, and write the plan."""
    started, gpu = time.monotonic(), gpu_of(arguments.arch)
    wanted = {u: c for u, c in read_units(arguments.units).items() if arguments.only in u.label}
    if arguments.callable is not None:
        wanted = {u: c for u, c in wanted.items() if why_not(u, arguments.callable or None) is None}
    if arguments.winners:
        known = load_winners(arguments.winners, outdated=arguments.outdated).by_unit
        wanted = {u: [known[u.key].config] for u in wanted if u.key in known}
    chosen: list[tuple[unit_types.Unit, Estimate]] = []
    for unit, given in wanted.items():
        mine = [estimate(unit, c, gpu) for c in given] or best(unit, gpu, arguments.best)
        chosen += [(unit, e) for e in mine]
    jobs = [Job(unit=unit, config=e.config, arch=gpu.arch) for unit, e in chosen]
    print(f"{len(wanted)} units, {len(jobs)} candidates", flush=True)
    heard = 0

    def done(index: int, outcome: Outcome) -> None:
        nonlocal heard
        heard += 1
        if heard % 200 == 0 or heard == len(jobs):
            print(f"{heard}/{len(jobs)} after {time.monotonic() - started:.0f} s", flush=True)

    outcomes = compile_many(
        jobs, workers=arguments.workers, timeout_s=arguments.timeout_s, done=done
    )
    failures = [o for o in outcomes if isinstance(o, Failure)]
    context = {"arch": gpu.arch, "best": arguments.best, "seconds": time.monotonic() - started}
    work = [(u, e.us, o) for (u, e), o in zip(chosen, outcomes, strict=True)]
    size = write_candidates(arguments.folder, work, context)
    print(f"{len(outcomes) - len(failures)} kernels, {size / 1e6:.1f} MB in {arguments.folder}")
    for reason in sorted({f.reason for f in failures})[:10]:
        print("failed:", reason)
    if size > arguments.limit_mb * 1e6:
        sys.exit(f"{size / 1e6:.1f} MB exceed {arguments.limit_mb} MB: split the units")


def run(arguments: argparse.Namespace) -> None:
    """Measure all candidates, restarting the measuring process behind one that breaks it."""
    if arguments.worker_from is not None:
        from cuda_measure import measure  # torch is imported only in the measuring process

        measure(
            [c for folder in arguments.folders for c in read_candidates(folder)],
            arguments.output,
            first=arguments.worker_from,
            budget_s=arguments.budget_s,
            library=not arguments.no_library,
            timed=not arguments.check_only,
        )
        return
    arguments.output.mkdir(parents=True, exist_ok=True)
    deadline, state = time.monotonic() + arguments.budget_s, arguments.output / "state.json"
    records = arguments.output / "records.jsonl"
    first: int | None = 0
    while first is not None and time.monotonic() < deadline:
        state.write_text(json.dumps({"index": first, "finished": False}))
        command = [sys.executable, *sys.argv, "--worker-from", str(first)]
        command += ["--budget-s", str(max(1.0, deadline - time.monotonic()))]
        reason = _watch(subprocess.Popen(command), state, deadline + HANG_S)
        seen = json.loads(state.read_text())
        first = None if seen["finished"] else seen["index"] + 1
        if not seen["finished"]:
            broken = {"index": seen["index"], "candidate": seen.get("candidate"), "reason": reason}
            with records.open("a") as file:
                file.write(json.dumps({**broken, "correct": False}) + "\n")
            print(f"candidate {seen['index']} broke the measuring process: {reason}", flush=True)
    state.unlink()
    show(argparse.Namespace(records=[records]))


def both(arguments: argparse.Namespace) -> None:
    """Compile the units part by part, and time each part while the next one is compiled."""
    started, output = time.monotonic(), arguments.output
    output.mkdir(parents=True, exist_ok=True)
    entries = json.loads(arguments.units.read_text())
    timing: subprocess.Popen[bytes] | None = None
    workers = str(max(1, (os.cpu_count() or 2) - 1))
    for number, first in enumerate(range(0, len(entries), arguments.part)):
        left_s = arguments.budget_s - (time.monotonic() - started)
        if left_s < 0:
            print(f"out of time before unit {first} of {len(entries)}")
            break
        part = output / f"part{number}"
        units = output / f"part{number}.json"
        units.write_text(json.dumps(entries[first : first + arguments.part]))
        command = [sys.executable, __file__, "prepare", str(units), str(part), "--arch"]
        command += [arguments.arch, "--best", str(arguments.best), "--workers", workers]
        subprocess.run([*command, "--limit-mb", "1000"], check=True)
        if timing is not None:
            timing.wait()
        command = [sys.executable, __file__, "run", str(part), "-o", str(output)]
        with (output / f"part{number}.log").open("w") as log:
            timing = subprocess.Popen(
                [*command, "--budget-s", str(max(30.0, left_s))], stdout=log, stderr=log
            )
    if timing is not None:
        timing.wait()
    show(argparse.Namespace(records=[output / "records.jsonl"]))
    for part in output.glob("part*"):
        shutil.rmtree(part) if part.is_dir() else part.unlink()


def _watch(process: subprocess.Popen[bytes], state: Path, deadline: float) -> str:
    """Wait for the process's end; one that makes no progress is killed."""
    while process.poll() is None:
        time.sleep(0.2)
        idle_s = time.time() - state.stat().st_mtime
        if idle_s > HANG_S or time.monotonic() > deadline:
            process.kill()
            process.wait()
            return f"no progress for {idle_s:.0f} s"
    return f"the process ended with {process.returncode}"


def show(arguments: argparse.Namespace) -> None:
    """One line per unit: the fastest correct candidate, the library, the model's first choice."""
    rows: dict[str, list[dict[str, Any]]] = {}
    broken = 0
    for record in _records(arguments.records):
        if "unit" in record:
            rows.setdefault(record["key"], []).append(record)
        else:
            broken += 1
    wrong = [r for group in rows.values() for r in group if not r["correct"]]
    ratios: list[float] = []
    regrets: list[float] = []
    for group in rows.values():
        ours = [r for r in group if "estimate_us" in r and r["correct"]]
        calls = [r for r in group if "config" in r and "estimate_us" not in r and r["correct"]]
        theirs = [r for r in group if "library" in r and r["correct"]]
        if not ours:
            print(f"{group[0]['label']}: no correct candidate")
            continue
        fastest = min(ours, key=_cold)
        first = min(ours, key=lambda r: r["estimate_us"])
        line = f"{fastest['label']}: {_cold(fastest):.2f} us (hot {_hot(fastest):.2f})"
        if theirs:
            library = min(theirs, key=_cold)
            ratios.append(_cold(library) / _cold(fastest))
            line += f", {library['library']} {_cold(library):.2f} ({ratios[-1]:.2f}x)"
        if calls:
            call = min(calls, key=_cold)
            line += f", {configs.from_json(call['config']).label} {_cold(call):.2f}"
        regrets.append(_cold(first) / _cold(fastest))
        line += f" | {configs.from_json(fastest['config']).label}"
        print(line + f" | first choice {regrets[-1]:.2f}x, expected {fastest['estimate_us']:.2f}")
    print(f"{len(rows)} units, {len(wrong)} wrong or failed candidates, {broken} broke the process")
    for record in wrong[:10]:
        print("  ", record["label"], record.get("config"), record.get("error"), record["reason"])
    if ratios:
        print(f"library / best: {statistics.geometric_mean(ratios):.2f}x over {len(ratios)} units")
    if regrets:
        print(f"model's first choice / best: {statistics.geometric_mean(regrets):.2f}x")


def keep_winners(arguments: argparse.Namespace) -> None:
    """Keep the winners."""
    winners = distil(r for r in _records(arguments.records) if "unit" in r)
    older = load_winners(arguments.onto).by_unit if arguments.onto else {}
    Winners({**older, **winners.by_unit}).save(arguments.output)
    calls = sum(winner.call is not None for winner in winners.by_unit.values())
    print(f"{len(winners.by_unit)} winners in {arguments.output}, {calls} with a library's call")


def _records(files: list[Path]) -> Iterator[dict[str, Any]]:
    for file in files:
        for line in file.read_text().splitlines():
            yield json.loads(line)


def _cold(record: dict[str, Any]) -> float:
    return float(statistics.median(record["cold_us"] or [math.nan]))


def _hot(record: dict[str, Any]) -> float:
    return float(statistics.median(record["hot_us"] or [math.nan]))


if __name__ == "__main__":
    main()
