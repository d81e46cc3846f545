"""Shows a cubin's GPU instructions with NVIDIA's disassembler; needs no GPU and no driver."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import tempfile
from pathlib import Path

from tvmscope.errors import BackendUnavailable, BuildError
from tvmscope.messages import msg

_PLACES = (Path("/usr/local/cuda/bin"),)
"""The folder of the CUDA toolkit's tools, which may not be on the PATH."""
_TIMEOUT_S = 120.0


def sass(cubin: bytes) -> str:
    """Return the instructions of every kernel in a cubin."""
    tool = find_tool("nvdisasm")
    if tool is None:
        raise BackendUnavailable(
            msg(
                "nvdisasm is needed to show the GPU's instructions: pip install triton, or "
                "install the CUDA toolkit"
            )
        )
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        done = subprocess.run(
            [str(tool), "--print-code", file.name],
            capture_output=True, text=True, check=False, timeout=_TIMEOUT_S,
        )  # fmt: skip
    if done.returncode:
        raise BuildError(
            msg("nvdisasm cannot read the kernel: {reason}", reason=done.stderr.strip()[-200:])
        )
    return done.stdout


def find_tool(name: str) -> Path | None:
    """Find a tool of the CUDA toolkit: on the PATH, in the toolkit's folder, or in Triton."""
    if found := shutil.which(name):
        return Path(found)
    places = (folder / name for folder in (*_PLACES, *_inside_triton()))
    return next((file for file in places if file.is_file()), None)


def _inside_triton() -> list[Path]:
    """Return the folders of Triton's wheel with its assembler and disassembler."""
    found = importlib.util.find_spec("triton")
    folders = (found.submodule_search_locations if found else None) or ()
    return [Path(folder) / "backends" / "nvidia" / "bin" for folder in folders]
