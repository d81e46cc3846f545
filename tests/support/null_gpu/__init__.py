"""A GPU that runs nothing: CUDA artifacts load and launch for real on a machine without a GPU.

`null_gpu.c` stands in for NVIDIA's driver and runtime in processes that get `environment`. It is
strict and keeps a log, so that a test sees what a GPU would have been given: the launches, those in
a CUDA graph, the memory. Results are whatever was in memory.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

_SOURCE = Path(__file__).with_name("null_gpu.c")
_VERSION = "libcudart.so.13"
"""The version that TVM's wheel gives the names of the runtime."""


@dataclass(frozen=True)
class Launch:
    """One launch of a kernel, by itself or as a node of a graph."""

    kernel: str
    in_graph: bool
    captured: bool
    """Whether it was recorded into a graph instead of being run."""
    dependent: bool
    left: tuple[int, ...] | None
    """Bytes from each pointer to the end of its memory; None if the arguments are not known."""


@dataclass(frozen=True)
class Log:
    """What the device was given."""

    lines: tuple[str, ...]

    @cached_property
    def refused(self) -> list[str]:
        """What a GPU would have refused."""
        return [line for line in self.lines if line.startswith("refused")]

    def count(self, word: str) -> int:
        """How many lines begin with a word."""
        return sum(line.split()[0] == word for line in self.lines)

    @cached_property
    def launches(self) -> list[Launch]:
        """All launches, in their order."""
        return [_launch(line) for line in self.lines if line.startswith(("launch ", "node "))]

    def runs(self) -> list[Log]:
        """What each run of a program gave it: from its results on, a copy to the host ends one."""
        found: list[list[str]] = [[]]
        for line in self.lines:
            if found[-1] and _is_result(found[-1][-1]) and not _is_result(line):
                found.append([])
            found[-1].append(line)
        return [Log(tuple(part)) for part in found if any(_is_result(line) for line in part)]

    def last_run(self) -> list[Launch]:
        """The launches of the last run."""
        return self.runs()[-1].launches


def _is_result(line: str) -> bool:
    return line.startswith("copy ") and line.endswith(" 2")


def _launch(line: str) -> Launch:
    before, _, pointers = line.partition(" pointers")
    what, kernel, *rest = before.split()
    return Launch(
        kernel=kernel,
        in_graph=what == "node",
        captured=rest[rest.index("captured") + 1] == "1",
        dependent=rest[rest.index("dependent") + 1] == "1",
        left=None if "?" in pointers else tuple(map(int, pointers.split())),
    )


class NullGpu:
    """The built libraries, and where processes that use them write."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._log = folder / "log.txt"
        _build(folder)

    @property
    def environment(self) -> dict[str, str]:
        """The variables of a process for which this is the GPU; its log begins anew."""
        self._log.unlink(missing_ok=True)
        kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PATH")}
        return kept | {
            "LD_LIBRARY_PATH": str(self.folder),
            "NULL_GPU_LOG": str(self._log),
            "PATH": "/nowhere",  # no CUDA compiler
        }

    def log(self) -> Log:
        """What the last process gave the device."""
        return Log(tuple(self._log.read_text().splitlines()))


def missing() -> str | None:
    """Why it cannot be built here."""
    if shutil.which("gcc") is None:
        return "no C compiler is installed"
    return None if _headers() is not None else "Triton, which brings CUDA's headers, is missing"


def _headers() -> Path | None:
    try:
        import triton
    except ImportError:
        return None
    return Path(triton.__file__).parent / "backends" / "nvidia" / "include"


def _build(folder: Path) -> None:
    versions = folder / "versions"
    versions.write_text(f"{_VERSION} {{ global: cu*; local: *; }};\n")
    command = [
        "gcc", "-shared", "-fPIC", "-O1", "-w", f"-I{_headers()}", str(_SOURCE),
        f"-Wl,--version-script={versions}", f"-Wl,-soname,{_VERSION}", "-o", _VERSION,
    ]  # fmt: skip
    subprocess.run(command, cwd=folder, check=True)
    (folder / "libcuda.so.1").symlink_to(_VERSION)  # one library, so that they share their memory
