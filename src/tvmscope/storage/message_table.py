"""Stores messages in a file: English sentences in the fields, their arguments in a table.

A reader of the file finds a plain sentence wherever there is text. The list under `messages` says
for each sentence that is a message its id and its arguments, once:

    {"text": "matmul takes 1.20 ms", "id": "{kernel} takes {time}",
     "args": {"kernel": "matmul", "time": {"seconds": 0.0012}}}

An argument is a string, a number, a list, a quantity (`seconds`, `bytes`), a number that JSON lacks
(`{"number": "inf"}`), or another message, with its `id` and `args`. A sentence without an entry is
foreign text, and so is one whose entry this version cannot read.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from tvmscope.messages import Bytes, Message, Seconds

KEY = "messages"
_QUANTITIES: dict[str, type[Seconds] | type[Bytes]] = {"seconds": Seconds, "bytes": Bytes}


def table(data: Any) -> list[dict[str, Any]]:
    """Return every message in an encoded value, once, in the order of the file."""
    found = dict.fromkeys(_messages(data))
    return [{"text": str(message), **_message(message)} for message in found]


def read(entries: Any) -> dict[str, Message]:
    """Return the messages of a table by their sentences; unreadable entries are skipped."""
    found: dict[str, Message] = {}
    for entry in entries if isinstance(entries, list) else ():
        try:
            found[entry["text"]] = _read_message(entry)
        except (LookupError, TypeError, ValueError, AttributeError):
            continue  # from a later version, or damaged: its sentence is still in the text
    return found


def _messages(data: Any) -> Iterator[Message]:
    if isinstance(data, Message):
        yield data
    elif isinstance(data, Mapping):
        for value in data.values():
            yield from _messages(value)
    elif isinstance(data, list):
        for value in data:
            yield from _messages(value)


def _message(message: Message) -> dict[str, Any]:
    many = {} if message.plural is None else {"plural": message.plural}
    args = {name: _arg(value) for name, value in message.args.items()}
    return {"id": message.id, **many, "args": args}


def _arg(value: Any) -> Any:
    if isinstance(value, Message):
        return _message(value)
    if isinstance(value, tuple):
        return [_arg(item) for item in value]
    for name, kind in _QUANTITIES.items():
        if isinstance(value, kind):
            return {name: _arg(value.value)}
    if isinstance(value, float) and not math.isfinite(value):
        return {"number": str(value)}
    return value


def _read_message(data: Any) -> Message:
    args = {name: _read_arg(value) for name, value in data["args"].items()}
    return Message(data["id"], args, data.get("plural"))


def _read_arg(data: Any) -> Any:
    if isinstance(data, list):
        return tuple(_read_arg(item) for item in data)
    if not isinstance(data, dict):
        return data
    if "id" in data:
        return _read_message(data)
    ((name, value),) = data.items()
    return float(value) if name == "number" else _QUANTITIES[name](_read_arg(value))
