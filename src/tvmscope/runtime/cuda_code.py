"""Determines which CUDA code an artifact contains, and whether a driver can run it.

A library contains the machine code of TVM's kernels. If the machine that built it had no CUDA
compiler, or one that does not know the GPU, it contains their source, which is compiled on loading.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import mmap
import re
import shutil
import struct
import subprocess
from pathlib import Path

from tvmscope.machine.cuda_device import CudaDevice
from tvmscope.messages import Text, msg

_FATBIN = struct.pack("<I", 0xBA55ED50)
_ELF = b"\x7fELF\x02\x01"
_EM_CUDA = 190


def holds_binary(library: Path) -> bool:
    """Whether a library contains compiled kernels: a fatbin (by nvcc) or a cubin (by NVRTC)."""
    with library.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as m:
        if m.find(_FATBIN) >= 0:
            return True
        index = m.find(_ELF, 1)
        while 0 <= index <= len(m) - 20:
            if struct.unpack_from("<H", m, index + 18)[0] == _EM_CUDA:
                return True
            index = m.find(_ELF, index + 1)
    return False


def compiler() -> tuple[str, str] | None:
    """Return TVM's CUDA compiler (see `load_model.choose_cuda_compiler`), and its version."""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):  # then nvcc is asked
        return "cuda-bindings", importlib.metadata.version("cuda-bindings")
    if (nvcc := shutil.which("nvcc")) is None:
        return None
    said = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=False).stdout
    release = re.search(r"release ([\d.]+)", said)
    return ("nvcc", release[1]) if release else None


def problem(built_with: str | None, device: CudaDevice) -> Text | None:
    """Say why a device's driver cannot run the code, and what to do; None if it can.

    `built_with` is the CUDA version of compiled kernels, None for source. Code runs on drivers of
    the same major version of CUDA, or of a later one.
    """
    driver = _major(device.driver)
    if built_with is not None:
        if _major(built_with) <= driver:
            return None
        return msg(
            "it is built with CUDA {built_with}, the driver is for {driver}; update the "
            "driver, or compile with --target cuda on this machine",
            built_with=built_with,
            driver=device.driver,
        )
    found = compiler()
    if found is None:
        return msg(
            "it contains CUDA source, and this machine has no compiler for it; install the CUDA "
            "toolkit "
            "(nvcc), or pip install cuda-bindings"
        )
    if _major(found[1]) > driver:
        return msg(
            "it holds CUDA source; {compiler} {version} makes code that the driver "
            "({driver}) cannot run; update the driver, or install an older {compiler}",
            compiler=found[0],
            version=found[1],
            driver=device.driver,
        )
    return None


def _major(version: str) -> int:
    match = re.search(r"\d+", version)
    return int(match[0]) if match else 0
