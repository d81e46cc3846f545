"""Loads the CUDA libraries that ONNX Runtime's provider needs, before it looks for them.

The provider finds what the system's loader finds, or what the process has loaded. The libraries of
pip's nvidia packages are neither; ONNX Runtime loads them only from the folder that it is in.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_CUFFT = {12: 11, 13: 12}
"""The major version of cuFFT in a major version of CUDA."""
_OPTIONAL = ("libcufft", "libnvrtc")
"""A few operators need them, the provider itself does not."""


def load(ort: Any) -> list[str]:
    """Load what is installed; return the names of the libraries that were not found."""
    _preload(ort)
    missing = [name for name in names(ort) if not _loads(name)]
    found = [name for name in missing if any(map(_loads, _files(name)))]
    if found:  # some versions register the provider here, once it can be loaded
        _preload(ort)
    return [name for name in missing if name not in found and not name.startswith(_OPTIONAL)]


def names(ort: Any) -> Iterator[str]:
    """The libraries of the CUDA version that this package was built for, dependencies first; none
    of a build for the CPU."""
    major = str(getattr(ort, "cuda_version", "") or "").partition(".")[0]
    if not major.isdigit():
        return
    for name in ("cudart", "cublasLt", "cublas", "nvrtc"):
        yield f"lib{name}.so.{major}"
    if int(major) in _CUFFT:
        yield f"libcufft.so.{_CUFFT[int(major)]}"
    yield from ("libcurand.so.10", "libcudnn.so.9")


def _preload(ort: Any) -> None:
    """Let ONNX Runtime load them; it prints what fails, where documents go."""
    preload = getattr(ort, "preload_dlls", None)  # since 1.21
    if preload is not None:
        with contextlib.redirect_stdout(io.StringIO()):
            preload()


def _loads(file: str) -> bool:
    """Whether the process has the library now; a bare name is its own or the system's."""
    try:
        ctypes.CDLL(file)
    except OSError:
        return False
    return True


def _files(name: str) -> Iterator[str]:
    for root in sys.path:
        yield from map(str, sorted(Path(root).glob(f"nvidia/*/lib/{name}")))
