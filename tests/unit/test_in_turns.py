"""Benchmark commands load side by side, and one measures while all others stand still."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil
import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
COMMAND = """
import json, sys, time
from pathlib import Path
from tvmscope.measure.machine_lock import alone
name, load_s, measure_s = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
ticks = Path(sys.argv[4]) / f"{name}.json"
seen = {"loading": [], "measuring": []}
def spend(what, seconds):
    for _ in range(int(seconds / 0.02)):
        seen[what].append(time.monotonic())
        time.sleep(0.02)
spend("loading", load_s)
for _ in range(int(sys.argv[5])):
    with alone(lambda text: print(text, flush=True)):
        spend("measuring", measure_s)
ticks.write_text(json.dumps(seen))
"""


@pytest.fixture
def in_turns(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))  # a lock of its own
    import in_turns as module

    monkeypatch.setattr(module, "MEASURING_S", 1.0)
    monkeypatch.setattr(module, "PATIENCE_S", 1.0)
    return module


def job(
    module: ModuleType, folder: Path, name: str, load_s: float, measure_s: float, times: int = 1
) -> Any:
    numbers = [str(load_s), str(measure_s), str(folder), str(times if measure_s else 0)]
    command = [sys.executable, "-c", COMMAND, name, *numbers]
    return module.Job(
        name=name, command=command, log=folder / f"{name}.log", measures=measure_s > 0
    )


def run(module: ModuleType, jobs: list[Any], **options: Any) -> tuple[dict[str, int], list[str]]:
    codes: dict[str, int] = {}
    left = module.InTurns(
        jobs, lambda done, code: codes.update({done.name: code}), spare_bytes=0, **options
    ).run()
    return codes, [each.name for each in left]


def ticks(folder: Path, name: str) -> dict[str, list[float]]:
    found: dict[str, list[float]] = json.loads((folder / f"{name}.json").read_text())
    return found


def test_nothing_moves_while_a_command_measures(in_turns: ModuleType, tmp_path: Path) -> None:
    times = {"quick": (0.1, 0.5), "slow": (2.5, 0.3), "third": (0.2, 0.5), "beside": (2.5, 0.0)}
    jobs = [job(in_turns, tmp_path, name, *t) for name, t in times.items()]
    codes, left = run(in_turns, jobs, at_once=3, together=1)
    assert codes == dict.fromkeys(times, 0)
    assert not left
    seen = {name: ticks(tmp_path, name) for name in times}
    for name in ("quick", "slow", "third"):
        begin, end = seen[name]["measuring"][0], seen[name]["measuring"][-1]
        others = [t for o in times if o != name for what in seen[o].values() for t in what]
        assert not [t for t in others if begin < t < end]


def test_what_is_too_late_is_interrupted_and_what_is_ready_measures(
    in_turns: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_turns, "PATIENCE_S", 60.0)
    jobs = [
        job(in_turns, tmp_path, "ready", 0.1, 0.2), job(in_turns, tmp_path, "late", 60, 0.2),
        job(in_turns, tmp_path, "never", 0.1, 0.2),
    ]  # fmt: skip
    start = time.monotonic()
    codes, left = run(in_turns, jobs, at_once=2, together=2, until=start + 5)
    assert codes["ready"] == 0
    assert codes["late"] != 0
    assert left == ["never"]
    assert time.monotonic() - start < 10


def test_a_ready_command_does_not_wait_for_the_slowest(
    in_turns: ModuleType, tmp_path: Path
) -> None:
    jobs = [job(in_turns, tmp_path, *each) for each in (("quick", 0.1, 0.2), ("slow", 6, 0.2))]
    assert run(in_turns, jobs)[0] == {"quick": 0, "slow": 0}
    assert ticks(tmp_path, "quick")["measuring"][0] < ticks(tmp_path, "slow")["loading"][-1]


def test_what_is_measured_last_has_the_time_that_is_left(
    in_turns: ModuleType, tmp_path: Path
) -> None:
    """A command may measure several times; the last go does not end with the first of them."""
    twice = job(in_turns, tmp_path, "twice", 0.1, 0.7, times=2)
    late = job(in_turns, tmp_path, "late", 60, 0.2)
    codes, _ = run(in_turns, [twice, late], until=time.monotonic() + 6)
    assert codes["twice"] == 0


def test_one_that_measures_and_waits_for_one_that_stands_still_goes_on(
    in_turns: ModuleType, tmp_path: Path
) -> None:
    held = tmp_path / "held"
    waits = (
        "import time; from pathlib import Path\n"
        "from tvmscope.measure.machine_lock import alone\n"
        "with alone(lambda text: print(text, flush=True)):\n"
        f"    while not Path({str(held)!r}).exists(): time.sleep(0.05)\n"
    )
    gives = f"import time; from pathlib import Path; time.sleep(4); Path({str(held)!r}).touch()"
    jobs = [
        in_turns.Job(name=name, command=[sys.executable, "-c", body], log=tmp_path / f"{name}.log")
        for name, body in (("waits", waits), ("gives", gives))
    ]
    codes, _ = run(in_turns, jobs, together=1, until=time.monotonic() + 30)
    assert codes == {"waits": 0, "gives": 0}


def test_a_failed_command_does_not_hold_the_others_up(in_turns: ModuleType, tmp_path: Path) -> None:
    broken = in_turns.Job(
        name="broken", command=[sys.executable, "-c", "raise SystemExit(3)"],
        log=tmp_path / "broken.log",
    )  # fmt: skip
    codes, _ = run(in_turns, [broken, job(in_turns, tmp_path, "good", 0.1, 0.1)])
    assert codes == {"broken": 3, "good": 0}


def test_what_a_late_command_has_started_ends_with_it(in_turns: ModuleType, tmp_path: Path) -> None:
    child = "import subprocess, sys; from pathlib import Path;"
    child += "p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'],"
    child += f" start_new_session=True); Path({str(tmp_path / 'pid')!r}).write_text(str(p.pid));"
    child += "p.wait()"
    late = in_turns.Job(
        name="late", command=[sys.executable, "-c", child], log=tmp_path / "late.log",
        measures=False,
    )  # fmt: skip
    run(in_turns, [late], until=time.monotonic() + 3)
    pid = int((tmp_path / "pid").read_text())
    deadline = time.monotonic() + 5
    while _runs(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _runs(pid)


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
