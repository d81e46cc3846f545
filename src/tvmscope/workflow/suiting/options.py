"""What a suite adds to the options of its problems: limits, what to keep, how to share the work."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from tvmscope.errors import UsageError
from tvmscope.measure.watch import machine_bytes
from tvmscope.messages import msg

_SHARE = 0.75
"""Of the machine's memory, for a worker that has no limit of its own."""
_DISK_SHARE = 0.5
"""Of what is free on the disk, for a problem's files."""


@dataclass(frozen=True, kw_only=True)
class Shard:
    """A part of a suite: problem `number`, `number + count`, ... of all."""

    number: int = 1
    count: int = 1

    @classmethod
    def parse(cls, text: str) -> Shard:
        """`3/8` is the third of eight."""
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
    """For a problem as a whole, from loading to the last round."""
    memory_bytes: int | None = None
    """For each worker with its children; None is a share of the machine's memory."""
    disk_bytes: int | None = None
    """For the files of a problem; None is a share of what is free."""
    profile: bool = True
    """Whether problems that are behind another backend are profiled."""
    all_backends: bool = False
    """Whether problems run on all backends where none are named; else on ours and the model's own
    framework."""
    keep: bool = False
    """Whether artifacts stay."""
    retry: bool = False
    """Whether problems that did not end right are measured again."""
    enter: bool = True
    """Whether a problem's current folder is one of its own, which is removed after it."""
    fork: bool = True
    """Whether workers come from a fork server."""
    shard: Shard = Shard()

    @property
    def memory_limit_bytes(self) -> int:
        """What a worker may take."""
        return self.memory_bytes or int(_SHARE * machine_bytes()[0])

    def disk_limit_bytes(self, folder: Path) -> int:
        """What a problem's files may take."""
        return self.disk_bytes or int(_DISK_SHARE * shutil.disk_usage(folder).free)
