"""Finds a compiler driver that can link a shared library for a target, and links with it."""

from __future__ import annotations

import importlib.util
import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tvmscope.core.target import Target
from tvmscope.errors import BuildError, one_line
from tvmscope.messages import msg


def linker_for(target: Target) -> tuple[str, ...]:
    """Return the driver and its first options; for other machines a cross compiler, or Zig's."""
    machine = _machine(target)
    if machine == _normal(platform.machine()):
        for name in ("c++", "g++", "clang++", "cc", "gcc", "clang"):
            if path := shutil.which(name):
                return (path,)
        if zig := _zig():
            return zig
        raise BuildError(
            msg(
                "no C++ compiler found to link the artifact; install g++ or clang, or `pip "
                "install ziglang`"
            )
        )
    if path := shutil.which(f"{machine}-linux-gnu-g++"):
        return (path,)
    if zig := _zig():
        return (*zig, "-target", f"{machine}-linux-gnu")
    raise BuildError(
        msg(
            "no linker for {machine} found; install {package}, or `pip install ziglang`",
            machine=machine,
            package=f"g++-{machine.replace('_', '-')}-linux-gnu",
        )
    )


def link(
    command: Sequence[str], output: str, objects: Sequence[str], options: Sequence[str] = ()
) -> None:
    """Link with a command of several words, which TVM's own linking cannot run."""
    words = [*command, "-shared", "-fPIC", "-o", output, *objects, *options]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    except OSError as e:
        raise BuildError(
            msg("linking with {command} failed: {reason}", command=command[0], reason=str(e))
        ) from e
    if done.returncode or not Path(output).is_file():
        said = one_line(RuntimeError(done.stderr or done.stdout or f"code {done.returncode}"))
        raise BuildError(
            msg("linking with {command} failed: {reason}", command=" ".join(command), reason=said)
        )


def _machine(target: Target) -> str:
    return _normal(target.triple.split("-")[0]) if target.triple else _normal(platform.machine())


def _normal(name: str) -> str:
    return {"arm64": "aarch64", "amd64": "x86_64"}.get(name.lower(), name.lower())


def _zig() -> tuple[str, ...] | None:
    if importlib.util.find_spec("ziglang") is None:
        return None
    # As a C compiler, because as a C++ one it would first build an unneeded C++ library.
    return (sys.executable, "-m", "ziglang", "cc")
