"""Whole comparisons with fake runners: every fault is a row, and the others finish."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support import fakes
from support.fakes import OUTPUTS, entry
from tvmscope.benchmark import running_row
from tvmscope.benchmark.compare import compare_all
from tvmscope.benchmark.entry import Entry
from tvmscope.benchmark.run import run
from tvmscope.core import stats
from tvmscope.core.measurement import Result
from tvmscope.core.options import MeasureOptions
from tvmscope.errors import RunError
from tvmscope.progress import Silent

QUICK = MeasureOptions(duration_s=0.2, warmup=1, iterations=9, timeout_s=20)


@dataclass
class Bench:
    """Runs entries against the fake reference and keeps every update."""

    folder: Path
    before: set[str]
    """Worker processes of other tests, which their fixtures hold."""
    updates: list[tuple[Result, ...]] = field(default_factory=list)
    interrupt_at: int | None = None
    alarm_s: float = 0
    """So long after the first measured round comes SIGALRM."""

    def run(self, *entries: Entry, options: MeasureOptions = QUICK) -> dict[str, Result]:
        np.savez(self.folder / "reference.npz", **OUTPUTS)
        results = run(
            entries,
            options,
            reference=self.folder / "reference.npz",
            reference_name="torch",
            tolerances=lambda task: 1e-4,
            progress=Silent(),
            on_update=self._update,
            log_dir=self.folder / "logs",
        )
        return {r.task.variant.backend: r for r in results}

    def _update(self, results: tuple[Result, ...]) -> None:
        self.updates.append(results)
        if len(self.updates) == self.interrupt_at:
            raise KeyboardInterrupt
        if self.alarm_s and results[0].measurement:
            signal.setitimer(signal.ITIMER_REAL, self.alarm_s)
            self.alarm_s = 0


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path, alive())


def alive() -> set[str]:
    """Worker processes that this one has not ended."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = path.read_text().rpartition(")")[2].split()[:2]
            command = (path.parent / "cmdline").read_bytes()
        except OSError:
            continue
        if int(parent) == os.getpid() and state != "Z" and b"measure._worker_process" in command:
            found.add(path.parent.name)
    return found


def test_a_row_that_leaves_cores_idle_says_so(bench: Bench) -> None:
    rows = bench.run(entry("lazy"), entry("busy", load=fakes.load_busy))
    lazy, busy = rows["lazy"], rows["busy"]
    assert lazy.cores_used is not None
    assert busy.cores_used is not None
    assert lazy.cores_used < 0.5 < busy.cores_used
    assert any("cores; busy" in text for text in lazy.warnings)
    assert not any("cores;" in text for text in busy.warnings)


def test_a_good_row_has_everything(bench: Bench) -> None:
    row = bench.run(replace(entry("a"), build_s=1.5, warnings=("mind the gap",)))["a"]
    assert (row.status, row.reason) == ("ok", None)
    assert row.measurement is not None
    assert len(row.measurement.values_s) == 9
    assert len(row.measurement.warmups_s) == 1
    assert row.accuracy is not None
    assert row.accuracy.passed
    assert row.accuracy.reference == "torch"
    assert row.settings == {"fault": "none"}
    assert row.build_s == 1.5
    assert row.load_s is not None
    assert row.peak_memory_bytes is not None
    assert row.peak_memory_bytes > 1 << 20
    assert row.warnings[0] == "mind the gap"
    json.dumps(stats.summary(row.measurement), allow_nan=False)
    assert alive() <= bench.before


FAULTS = {
    "segfault": "killed by signal 11 (segmentation fault)",
    "exit": "exited with code 3",
    "memory": "out of memory",
    "error": "ValueError: at all",
}


@pytest.mark.parametrize("at", [0, 4], ids=["while loading", "while timing"])
def test_each_fault_is_a_row_and_the_others_finish(bench: Bench, at: int) -> None:
    faulty = [entry(fault, fault=fault, at=at) for fault in FAULTS]
    rows = bench.run(entry("first"), *faulty, entry("last"))
    for fault, reason in FAULTS.items():
        assert rows[fault].status == "failed"
        assert reason in (rows[fault].reason or "")
        assert rows[fault].measurement is None
    for good in ("first", "last"):
        measurement = rows[good].measurement
        assert rows[good].status == "ok"
        assert measurement is not None
        assert len(measurement.values_s) == 9
    (found,) = compare_all(tuple(rows.values()))
    assert {found.key.name, found.against.name} == {"first", "last"}
    assert alive() <= bench.before


def test_a_hang_is_a_row_too(bench: Bench) -> None:
    options = replace(QUICK, timeout_s=1.0)
    rows = bench.run(entry("stuck", fault="hang", at=3), entry("good"), options=options)
    assert (rows["stuck"].status, rows["stuck"].reason) == ("failed", "did not answer for 1 s")
    assert rows["good"].status == "ok"


def test_a_wrong_result_is_timed_but_never_wins(bench: Bench) -> None:
    rows = bench.run(entry("tvmscope", fault="wrong", at=-1), entry("slow", run_s=0.01))
    wrong = rows["tvmscope"]
    assert wrong.status == "wrong"
    assert "output 'y'" in (wrong.reason or "")
    assert wrong.measurement is not None
    assert compare_all(tuple(rows.values())) == ()


def test_missing_backends_are_unavailable_with_the_reason(bench: Bench) -> None:
    planned = replace(entry("planned"), unavailable="install it first")
    rows = bench.run(planned, entry("found-out", fault="missing"), entry("good"))
    assert (rows["planned"].status, rows["planned"].reason) == ("unavailable", "install it first")
    assert (rows["found-out"].status, rows["found-out"].reason) == ("unavailable", "install it")
    assert rows["good"].status == "ok"


def test_a_clear_difference_is_called(bench: Bench) -> None:
    options = MeasureOptions(duration_s=0.5, warmup=1)
    rows = bench.run(entry("tvmscope", run_s=0.008), entry("b", run_s=0.016), options=options)
    (found,) = compare_all(tuple(rows.values()))
    assert found.verdict == "faster"
    assert 1.5 < found.speedup < 2.2


def test_device_time_stands_beside_wall_time(bench: Bench) -> None:
    row = bench.run(entry("gpu", load=fakes.load_device))["gpu"]
    assert row.device_measurement is not None
    assert row.device_measurement.clock == "cuda-events"
    assert set(row.device_measurement.values_s) == {5e-4}


def test_spread_is_warned_about(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running_row, "CPU_SPREAD", -1.0)
    assert any("noisy" in w for w in bench.run(entry("a"))["a"].warnings)


def test_updates_follow_each_load_and_each_round(bench: Bench) -> None:
    bench.run(entry("a"), entry("b"))
    first, last = bench.updates[0], bench.updates[-1]
    assert [r.status for r in first] == ["interrupted", "interrupted"]
    assert [r.status for r in last] == ["ok", "ok"]
    counts = [len(r[0].measurement.rounds_s) for r in bench.updates if r[0].measurement]
    assert counts == sorted(counts)
    assert set(counts) == set(range(1, 10))


@pytest.mark.parametrize(
    ("at", "statuses"),
    [(2, ["interrupted", "interrupted"]), (8, ["ok", "ok"])],
    ids=["while loading", "while timing"],
)
def test_ctrl_c_keeps_what_was_measured(bench: Bench, at: int, statuses: list[str]) -> None:
    bench.interrupt_at = at
    with pytest.raises(KeyboardInterrupt):
        bench.run(entry("a"), entry("b"))
    kept = bench.updates[-1]
    assert [r.status for r in kept] == statuses
    if statuses[0] == "ok":
        assert all(r.measurement and len(r.measurement.rounds_s) == 4 for r in kept)
        assert any("interrupted after 4 rounds" in w for w in kept[0].warnings)
    assert alive() <= bench.before


def test_a_real_interrupt_reaches_a_waiting_run(bench: Bench) -> None:
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    bench.alarm_s = 0.2
    with pytest.raises(KeyboardInterrupt):
        bench.run(entry("a"), options=MeasureOptions(duration_s=60, min_rounds=100))
    signal.signal(signal.SIGALRM, before)
    (row,) = bench.updates[-1]
    assert row.status == "ok"
    assert row.measurement is not None
    assert alive() <= bench.before


def test_a_missing_reference_is_an_error_before_any_worker(bench: Bench) -> None:
    arguments: dict[str, Any] = {"reference_name": "t", "tolerances": lambda t: 0.0}
    arguments |= {"progress": Silent(), "on_update": lambda r: None}
    with pytest.raises(RunError, match="missing"):
        run([entry("a")], QUICK, reference=bench.folder / "none.npz", **arguments)
