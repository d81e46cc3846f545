"""The options of a suite beyond those of its problems: limits, files to keep, sharing of work."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from tvmscope.errors import UsageError
from tvmscope.measure.watch import machine_bytes
from tvmscope.messages import msg

_SHARE = 0.75
"""The share of the machine's memory for a worker without its own limit."""
_DISK_SHARE = 0.5
"""The share of the free disk space for a problem's files."""


@dataclass(frozen=True, kw_only=True)
class Shard:
    """A part of a suite: problem `number`, `number + count`, ... of all."""

    number: int = 1
    count: int = 1

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Parse `3/8`: the third of eight."""
        number, slash, count = text.partition("/")
        if not slash or not number.isdecimal() or not count.isdecimal():
            raise UsageError(msg("--shard {text}: write 3/8 for the third of eight", text=text))
        if not 1 <= int(number) <= int(count):
            raise UsageError(
                msg("--shard {text}: give a part from 1 to {count}", text=text, count=count)
            )
        return cls(number=int(number), count=int(count))


@dataclass(frozen=True, kw_only=True)
class SuiteOptions:
    """How a suite treats its problems."""

    timeout_s: float = 300.0
    """The time limit for a whole problem, from loading to the last round."""
    memory_bytes: int | None = None
    """The memory of each worker with its children; None means a share of the machine's memory."""
    disk_bytes: int | None = None
    """The disk space of a problem's files; None means a share of the free space."""
    profile: bool = True
    """Whether problems that are slower than another backend are profiled."""
    all_backends: bool = False
    """Whether problems run on all backends if none are named; else on ours and the model's own
    framework."""
    keep: bool = False
    """Whether artifacts are kept."""
    retry: bool = False
    """Whether problems without a correct result are measured again."""
    enter: bool = True
    """Whether a problem gets its own current folder, which is removed after it."""
    fork: bool = True
    """Whether workers come from a fork server."""
    shard: Shard = Shard()

    @property
    def memory_limit_bytes(self) -> int:
        """The memory that a worker may use."""
        return self.memory_bytes or int(_SHARE * machine_bytes()[0])

    def disk_limit_bytes(self, folder: Path) -> int:
        """Return the disk space that a problem's files may use."""
        return self.disk_bytes or int(_DISK_SHARE * shutil.disk_usage(folder).free)
