"""How a process ended, in words, from its exit code and its last lines."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from itertools import takewhile
from typing import Literal

DeathKind = Literal["crash", "hang", "exit", "memory"]


def describe_exit(code: int, tail: list[str]) -> tuple[DeathKind, str]:
    """What an exit code and the output before it say."""
    if code >= 0:
        return "exit", f"exited with code {code}"
    words = (signal.strsignal(-code) or "unknown").lower()
    if any("bad_alloc" in line or "out of memory" in line.lower() for line in tail):
        return "memory", "out of memory"
    if -code == signal.SIGKILL:
        return "memory", f"killed by signal 9 ({words}), most likely for lack of memory"
    return "crash", f"killed by signal {-code} ({words})"


def until_dump(lines: list[str]) -> Iterator[str]:
    """The lines before Python's own crash dump."""
    return takewhile(lambda line: not line.startswith("Fatal Python error"), lines)
