"""Starts our processes: with this Python, this source tree and nothing from the current folder."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path


def command(module: str) -> tuple[str, ...]:
    """Return the command that runs a module. -P: the current folder must not shadow a library; -u:
    a crash loses no output."""
    return (sys.executable, "-P", "-u", "-m", module)


def environment(extra: Mapping[str, str]) -> dict[str, str]:
    """Return our environment plus `extra`, with an uninstalled source tree on the child's path."""
    env = {**os.environ, **extra}
    root = Path(__file__).resolve().parents[2]
    if root.name not in ("site-packages", "dist-packages"):
        env["PYTHONPATH"] = os.pathsep.join(filter(None, (env.get("PYTHONPATH"), str(root))))
    return env
