"""The isolated process: answers, failures of every kind, and that nothing outlives its parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support import fakes
from support.fakes import ENV, OUTPUTS
from tvmscope.errors import BackendUnavailable, RunError, UsageError
from tvmscope.measure.remote import Remote, here
from tvmscope.measure.worker import Worker, WorkerDied


def worker(timeout_s: float = 30.0, log_path: Path | None = None) -> Worker:
    return Worker("fake", env=ENV, timeout_s=timeout_s, log_path=log_path)


def call(function: Callable[..., Any], *args: Any, **kw: Any) -> Any:
    with worker() as w:
        return w.call(here(function), *args, **kw)


def state(pid: int) -> str:
    """The state letter of a process, `gone` when there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "gone"


def wait_for(pid: int, states: str) -> None:
    end = time.monotonic() + 5
    while state(pid) not in states.split():
        assert time.monotonic() < end, f"process is {state(pid)}, not {states}"
        time.sleep(0.01)


def test_calls_a_function_and_returns_its_result() -> None:
    assert call(fakes.add, 2, b=3) == 5


def test_child_imports_no_heavy_library_by_itself() -> None:
    # `fakes` imports numpy, so that only tvm and torch can be told here
    assert call(fakes.imported) == ["numpy"]
    loaded = "import tvmscope.measure._worker_process, sys; print('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True)
    assert done.stdout.strip() == "False"


def test_loads_times_and_writes_outputs(tmp_path: Path) -> None:
    with worker() as w:
        before = w.peak_memory_bytes()
        info = w.load(here(fakes.load), {"run_s": 0.002})
        assert info.settings == {"fault": "none"}
        assert not info.has_device_timer
        assert info.load_s >= 0
        values = w.time(4)
        assert len(values) == 4
        assert all(0.002 <= v < 0.05 for v in values)
        assert w.time(1, loops=3)[0] < 0.05
        assert len(w.time(2, cold=True)) == 2
        w.outputs(tmp_path / "y.npz")
        memory = w.peak_memory_bytes()
    with np.load(tmp_path / "y.npz") as found:
        assert np.array_equal(found["y"], OUTPUTS["y"])
    assert before is not None
    assert memory is not None
    assert memory > before > 2**20


def test_device_timer_is_offered_where_the_runner_has_one() -> None:
    with worker() as w:
        assert w.load(here(fakes.load_device), {}).has_device_timer
        assert w.time_device(3) == [5e-4] * 3


def test_a_runner_with_a_clock_of_its_own_is_timed_by_it() -> None:
    with worker() as w:
        w.load(here(fakes.load_clock), {})
        assert w.time(3, 7) == [7.0] * 3
        assert w.time(1, 1, cold=True) == [1.5]


def test_our_errors_keep_type_and_message() -> None:
    with worker() as w:
        with pytest.raises(UsageError, match="line one\nline two"):
            w.call(here(fakes.raise_usage))
        with pytest.raises(BackendUnavailable, match="install it"):
            w.call(here(fakes.fail), "missing")
        with pytest.raises(RunError, match=r"^our own words$"):
            w.call(here(fakes.fail), "run-error")


def test_other_errors_become_one_line_and_the_worker_lives_on() -> None:
    with worker() as w:
        with pytest.raises(RunError, match=r"^ValueError: at all$"):
            w.call(here(fakes.fail), "error")
        with pytest.raises(RunError, match="No module named 'nowhere'"):
            w.call(Remote("nowhere", "f"))
        with pytest.raises(RunError, match="pickle"):
            w.call(here(fakes.unpicklable))
        assert w.call(here(fakes.add), 1) == 1


@pytest.mark.parametrize(
    ("fault", "kind", "words"),
    [
        ("segfault", "crash", r"killed by signal 11 \(segmentation fault\)"),
        ("exit", "exit", "exited with code 3"),
        ("memory", "memory", "out of memory"),
        ("killed", "memory", "killed by signal 9"),
    ],
)
def test_death_is_told_by_kind_and_in_words(fault: str, kind: str, words: str) -> None:
    with worker() as w:
        with pytest.raises(WorkerDied, match=words) as first:
            w.call(here(fakes.fail), fault)
        assert first.value.kind == kind
        with pytest.raises(WorkerDied, match=words):  # and it stays dead
            w.call(here(fakes.add), 1)


def test_a_hang_is_ended() -> None:
    w = worker()
    w.call(here(fakes.add), 1)  # a busy machine may take its time to start Python
    w.timeout_s = 0.6
    with pytest.raises(WorkerDied, match=r"did not answer for 0\.6 s") as caught:
        w.call(here(fakes.fail), "hang")
    assert caught.value.kind == "hang"
    assert state(w.pid) == "gone"


@pytest.mark.slow  # by the clock
def test_a_hang_is_ended_after_the_timeout() -> None:
    w = worker(timeout_s=0.6)
    w.call(here(fakes.add), 1)
    start = time.monotonic()
    with pytest.raises(WorkerDied, match=r"did not answer for 0\.6 s") as caught:
        w.call(here(fakes.fail), "hang")
    assert caught.value.kind == "hang"
    assert time.monotonic() - start < 3
    assert state(w.pid) == "gone"


def test_long_timing_that_goes_on_is_no_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    from tvmscope.measure import _worker_process

    signs: list[int] = []
    monkeypatch.setattr(_worker_process, "_ALIVE_EVERY_S", 0.0)
    child = _worker_process.Child(alive=lambda: signs.append(1))
    child.load(here(fakes.load), {"run_s": 0.0})
    child.time(3, 1, False)
    assert len(signs) == 3


def test_last_words_of_the_log_are_part_of_the_reason(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "fake.log"
    with worker(log_path=log) as w, pytest.raises(WorkerDied, match="code 7: driver is too old"):
        w.call(here(fakes.say_and_exit), "driver is too old", 7)
    assert "driver is too old" in log.read_text()


def test_pause_stops_the_process_and_a_question_wakes_it() -> None:
    with worker() as w:
        w.call(here(fakes.add), 1)
        w.pause()
        wait_for(w.pid, "T")
        assert w.call(here(fakes.add), 2) == 2
        w.pause()
        w.resume()
        wait_for(w.pid, "S R")


def test_close_ends_a_paused_worker() -> None:
    w = worker()
    w.call(here(fakes.add), 1)
    w.pause()
    w.close()
    assert state(w.pid) == "gone"
    w.close()


def test_ctrl_c_in_the_parent_does_not_reach_the_child() -> None:
    with worker() as w:
        w.call(here(fakes.add), 1)
        assert os.getsid(w.pid) == w.pid
        os.kill(w.pid, signal.SIGINT)
        assert w.call(here(fakes.add), 2) == 2


ORPHAN = """
import os, sys
from tvmscope.measure.remote import Remote
from tvmscope.measure.worker import Worker
w = Worker("fake")
w.call(Remote("os", "getpid"))
if sys.argv[1] == "paused":
    w.pause()
print(w.pid, flush=True)
os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize("how", ["idle", "paused"])
def test_no_worker_outlives_a_killed_parent(how: str) -> None:
    done = subprocess.run([sys.executable, "-c", ORPHAN, how], capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL
    wait_for(int(done.stdout), "gone Z")


def test_work_over_there_says_how_far_it_is() -> None:
    seen: list[Any] = []
    with worker() as w:
        w.on_step = seen.append
        assert w.call(here(fakes.tell_of_steps), 2) == 2
        assert w.call(here(fakes.add), 1) == 1
    assert seen == [(0, 2, "step 0"), (1, 2, "step 1")]
    fakes.tell_of_steps(1)  # nobody listens here
