"""Finds a compiler driver that can link a shared library for a target."""

from __future__ import annotations

import importlib.util
import platform
import shutil
import sys

from tvmscope.core.target import Target
from tvmscope.errors import BuildError


def linker_for(target: Target) -> tuple[str, ...]:
    """The driver and its first options; for other machines a cross compiler, or Zig's."""
    machine = _machine(target)
    if machine == _normal(platform.machine()):
        for name in ("c++", "g++", "clang++", "cc", "gcc", "clang"):
            if path := shutil.which(name):
                return (path,)
        if zig := _zig():
            return zig
        raise BuildError(
            "no C++ compiler found to link the artifact; install g++ or clang, "
            "or `pip install ziglang`"
        )
    if path := shutil.which(f"{machine}-linux-gnu-g++"):
        return (path,)
    if zig := _zig():
        return (*zig, "-target", f"{machine}-linux-gnu")
    raise BuildError(
        f"no linker for {machine} found; install g++-{machine.replace('_', '-')}-linux-gnu, "
        "or `pip install ziglang`"
    )


def _machine(target: Target) -> str:
    return _normal(target.triple.split("-")[0]) if target.triple else _normal(platform.machine())


def _normal(name: str) -> str:
    return {"arm64": "aarch64", "amd64": "x86_64"}.get(name.lower(), name.lower())


def _zig() -> tuple[str, ...] | None:
    if importlib.util.find_spec("ziglang") is None:
        return None
    return (sys.executable, "-m", "ziglang", "c++")
