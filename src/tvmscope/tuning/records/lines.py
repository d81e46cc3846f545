"""One trial as one line of JSON: how it is written, read, checked and found.

A line that we wrote begins with its workload and ends with the schema version, so that its two ends
show whether it is complete and has our format, without parsing it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

from tvmscope.core.target import Target
from tvmscope.core.tuning import Trial
from tvmscope.errors import SchemaError, TuneError
from tvmscope.messages import Text, clauses, msg
from tvmscope.storage import message_table
from tvmscope.storage.codec import decode, encode
from tvmscope.tuning.records import older

SCHEMA_VERSION = 2
_START, _NEXT = b'{"workload":', b',"candidate":'
_END = f',"schema_version":{SCHEMA_VERSION}}}'.encode()
_EARLIER_END = b',"schema_version":1}'
_VALIDATED = b',"stage":"validated",'
_STAND_IN = {"kind": "llvm", "arch": ""}


class Glimpse(NamedTuple):
    """The data visible at a line's ends."""

    workload: bytes
    """The workload as JSON."""
    validated: bool


def to_line(trial: Trial) -> bytes:
    """Return the trial as a line with its newline; raise if its values are impossible."""
    if faults := list(problems(trial)):
        raise TuneError(
            msg(
                "a trial of {workload} cannot be kept: {faults}",
                workload=repr(trial.workload),
                faults=clauses(faults),
            )
        )
    data = encode(trial)
    if messages := message_table.table(data):
        data[message_table.KEY] = messages
    return _dump({**data, "schema_version": SCHEMA_VERSION}) + b"\n"


def from_line(line: bytes) -> Trial:
    """Return the trial in a line; a SchemaError says what is wrong with it."""
    try:
        data = json.loads(line)
    except (ValueError, RecursionError) as e:
        raise SchemaError(msg("incomplete, or not JSON")) from e
    if not isinstance(data, dict) or "schema_version" not in data:
        raise SchemaError(msg("not a record of tvmscope"))
    version = data["schema_version"]
    if version not in (1, SCHEMA_VERSION):
        raise SchemaError(
            msg(
                "schema version {version}; this tvmscope reads 1 to {newest}",
                version=repr(version),
                newest=SCHEMA_VERSION,
            )
        )
    trial = _decoded(older.from_first(data) if version == 1 else data)
    if fault := next(problems(trial), None):
        raise SchemaError(fault)
    return trial


def glimpse(line: bytes) -> Glimpse | None:
    """Return the visible data of a complete line of ours; None if it must be parsed."""
    if not (line.startswith(_START) and line.rstrip(b"\n").endswith((_END, _EARLIER_END))):
        return None
    end = line.find(_NEXT)
    return Glimpse(line[len(_START) : end], _VALIDATED in line) if end > 0 else None


def is_current(line: bytes) -> bool:
    """Whether a line has the current format of `to_line`, judged by its ends."""
    return line.startswith(_START) and line.rstrip(b"\n").endswith(_END)


def workload_key(workload: str) -> bytes:
    """Return a workload in the form of `glimpse`."""
    return _dump(workload)


def problems(trial: Trial) -> Iterator[Text]:
    """What a trial says that cannot be."""
    if not trial.workload:
        yield msg("no workload")
    if trial.threads < 1:
        yield msg("{count} threads", count=trial.threads)
    if trial.clock_hz is not None and not _positive(trial.clock_hz):
        yield msg("a clock of {clock} Hz", clock=trial.clock_hz)
    for name, times in (("seconds", trial.seconds), ("baseline_s", trial.baseline_s)):
        if wrong := [t for t in times if not _positive(t)]:
            yield msg("{name} holds {value}", name=name, value=wrong[0])
    if trial.status == "ok" and not trial.seconds:
        yield msg("status ok without seconds")
    if trial.status == "ok" and trial.stage == "validated" and not trial.baseline_s:
        yield msg("validated without the untuned kernel's times")


def _positive(value: float) -> bool:
    return math.isfinite(value) and value > 0


def _dump(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()


def _decoded(data: dict[str, Any]) -> Trial:
    """Return the trial; its target, which nearly all lines share, is decoded once."""
    target = _target(json.dumps(data.get("target")))
    messages = message_table.read(data.get(message_table.KEY))
    return replace(decode(Trial, {**data, "target": _STAND_IN}, messages), target=target)


@lru_cache(maxsize=256)
def _target(text: str) -> Target:
    return decode(Target, json.loads(text))
