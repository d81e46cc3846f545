"""Describes how a process ended, from its exit code and its last lines."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from itertools import takewhile
from typing import Literal

from tvmscope.messages import Text, msg

DeathKind = Literal["crash", "hang", "exit", "memory", "time", "disk"]
"""`hang` is a request without an answer, `time` means that the whole job's time is over."""


def describe_exit(code: int, tail: list[str]) -> tuple[DeathKind, Text]:
    """Describe how a process ended, from the exit code and the output before it."""
    if code >= 0:
        return "exit", msg("exited with code {code}", code=code)
    words = (signal.strsignal(-code) or "unknown").lower()
    if any("bad_alloc" in line or "out of memory" in line.lower() for line in tail):
        return "memory", msg("out of memory")
    if -code == signal.SIGKILL:
        return "memory", msg(
            "killed by signal 9 ({words}), most likely for lack of memory", words=words
        )
    return "crash", msg("killed by signal {number} ({words})", number=-code, words=words)


def until_dump(lines: list[str]) -> Iterator[str]:
    """Return the lines before Python's own crash dump."""
    return takewhile(lambda line: not line.startswith("Fatal Python error"), lines)
