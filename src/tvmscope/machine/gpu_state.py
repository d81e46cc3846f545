"""Reads a GPU's clocks, what limits them, and its memory from NVML, without any package."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

from tvmscope.messages import marked

_SM_CLOCK = 1  # NVML_CLOCK_SM
_HELD_DOWN = {
    0x4: marked("power cap"),
    0x8: marked("hardware slowdown"),
    0x20: marked("too hot (software)"),
    0x40: marked("too hot (hardware)"),
    0x80: marked("power brake"),
}
"""Bits of nvmlClocksEventReasons that mean lower clocks than set."""
_REASONS = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
"""The second name is that of drivers before 535."""


class _Memory(ctypes.Structure):
    _fields_ = (
        ("total", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    )


@dataclass(frozen=True, kw_only=True)
class Sample:
    """The clocks at one moment; None if the driver does not report them."""

    sm_mhz: int | None
    held_down: tuple[str, ...] = ()


class GpuState:
    """An open connection to NVML for one GPU."""

    def __init__(self, library: ctypes.CDLL, handle: ctypes.c_void_p) -> None:
        self._library, self._handle = library, handle

    def sample(self) -> Sample:
        """Return the current clock of the multiprocessors, and the reasons that limit it."""
        clock = ctypes.c_uint()
        failed = self._library.nvmlDeviceGetClockInfo(self._handle, _SM_CLOCK, ctypes.byref(clock))
        bits = self._reasons()
        held = tuple(words for bit, words in _HELD_DOWN.items() if bits & bit)
        return Sample(sm_mhz=None if failed else clock.value, held_down=held)

    def _reasons(self) -> int:
        bits = ctypes.c_ulonglong()
        for name in _REASONS:
            ask = getattr(self._library, name, None)
            if ask is not None and ask(self._handle, ctypes.byref(bits)) == 0:
                return bits.value
        return 0

    def used_bytes(self) -> int | None:
        """Return the memory in use, by all processes."""
        memory = _Memory()
        failed = self._library.nvmlDeviceGetMemoryInfo(self._handle, ctypes.byref(memory))
        return None if failed else int(memory.used)


def connect(pci_bus: str) -> GpuState | None:
    """Connect to the GPU at a place on the PCI bus; None if NVML or the GPU is missing.

    NVML numbers all GPUs of the machine by their places; CUDA numbers those that it may see, by
    default the fastest first.
    """
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None
    handle = ctypes.c_void_p()
    if library.nvmlInit_v2() or library.nvmlDeviceGetHandleByPciBusId_v2(
        pci_bus.encode(), ctypes.byref(handle)
    ):
        return None
    return GpuState(library, handle)
