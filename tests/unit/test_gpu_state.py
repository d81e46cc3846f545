"""Clocks, throttling and memory of a GPU per row, from a made-up NVML."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from support import samples
from support.rows import key
from tvmscope.benchmark.entry import Entry
from tvmscope.benchmark.running_row import RunningRow
from tvmscope.core.measurement import GpuUse
from tvmscope.core.session import from_json, to_json
from tvmscope.machine import gpu_state
from tvmscope.machine.gpu_state import GpuState, Sample
from tvmscope.measure.interleave import Lane
from tvmscope.report.formats import console
from tvmscope.report.renderers import renderers
from tvmscope.report.sections import view


class Nvml:
    """The library's functions, by its names."""

    def __init__(self, mhz: int = 1980, reasons: int = 0, used: int = 5 << 30, gpus: int = 1):
        self.mhz, self.bits, self.used, self.gpus = mhz, reasons, used, gpus

    def nvmlInit_v2(self) -> int:  # noqa: N802
        return 0

    def nvmlDeviceGetHandleByPciBusId_v2(self, _bus: bytes, _out: Any) -> int:  # noqa: N802
        return 0 if self.gpus else 2

    def nvmlDeviceGetClockInfo(self, _handle: Any, kind: int, out: Any) -> int:  # noqa: N802
        out._obj.value = self.mhz if kind == 1 else 1
        return 0 if self.mhz else 3

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, _handle: Any, out: Any) -> int:  # noqa: N802
        out._obj.value = self.bits
        return 0

    def nvmlDeviceGetMemoryInfo(self, _handle: Any, out: Any) -> int:  # noqa: N802
        out._obj.used = self.used
        return 0


def state(**more: Any) -> GpuState:
    return GpuState(Nvml(**more), ctypes.c_void_p())  # type: ignore[arg-type]


def test_clocks_and_what_holds_them_down_are_read() -> None:
    assert state().sample() == Sample(sm_mhz=1980)
    assert state(reasons=0x4 | 0x40 | 0x1).sample().held_down == (
        "power cap", "too hot (hardware)",
    )  # fmt: skip
    assert state(mhz=0).sample().sm_mhz is None
    assert state().used_bytes() == 5 << 30


def test_a_machine_without_a_gpu_has_no_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _name: Nvml(gpus=0))
    assert gpu_state.connect("0000:01:00.0") is None

    def missing(_name: str) -> Any:
        raise OSError("no such file")

    monkeypatch.setattr(ctypes, "CDLL", missing)
    assert gpu_state.connect("0000:01:00.0") is None


def test_a_row_keeps_clocks_by_round_and_the_memory_that_came_back() -> None:
    nvml = Nvml()
    reader = GpuState(nvml, ctypes.c_void_p())  # type: ignore[arg-type]
    row = RunningRow(Entry.__new__(Entry))
    row.lane = Lane("fake", SimpleNamespace())  # type: ignore[arg-type]
    row.watch(reader)
    assert row.lane.watch is not None
    row.lane.watch()
    nvml.mhz, nvml.bits = 1400, 0x4
    row.lane.watch()
    assert row.gpu == GpuUse(sm_mhz=(1980, 1400), held_down=("power cap",))

    def close() -> None:
        nvml.used -= 700 << 20

    row.worker = SimpleNamespace(close=close)  # type: ignore[assignment]
    row.close(reader)
    assert row.gpu is not None
    assert row.gpu.memory_bytes == 700 << 20


def test_a_session_keeps_and_shows_it() -> None:
    used = GpuUse(sm_mhz=(1980, 1965), held_down=("power cap",), memory_bytes=700 << 20)
    row = replace(samples.result(key("tvmscope", "cuda:sm_90"), 3e-4), gpu=used)
    session = samples.session(row)
    again = from_json(to_json(session))
    assert again.results[0].gpu == used
    (shown,) = view.measured(again)
    assert shown.clock == "1965-1980 MHz"
    assert any("700" in str(note) and "GPU memory" in str(note) for note in shown.notes)


@pytest.mark.parametrize("name", ["console", "markdown", "html"])
def test_tables_have_the_clock_of_rows_where_it_was_read(name: str) -> None:
    read = replace(samples.result(key("tvmscope", "cuda:sm_90"), 3e-4), gpu=GpuUse(sm_mhz=(1980,)))
    other = samples.result(key("torch", "cuda:sm_90"), 4e-4)
    render = renderers()[name].render
    shown = str(render([samples.session(read, other)]))
    assert "GPU clock" in shown
    assert shown.count("1980 MHz") == 1, "in the table, and not once more among the remarks"
    assert "GPU clock" not in str(render([samples.session(other)]))


def test_a_narrow_terminal_leaves_the_clock_out_and_keeps_the_interval() -> None:
    used = GpuUse(sm_mhz=(1980, 1965))
    row = replace(samples.result(key("tvmscope", "cuda:sm_90"), 3e-4), gpu=used)
    wide, narrow = (console.to_text([samples.session(row)], width) for width in (120, 72))
    assert "1965-1980 MHz" in wide
    assert "MHz" not in narrow
    assert "95 % interval" in narrow
