"""A catalogue of another language for tests, written as gettext's binary files are."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

HEADER = "Content-Type: text/plain; charset=UTF-8\nPlural-Forms: nplurals=2; plural=(n != 1);\n"
_MAGIC = 0x950412DE


def write(folder: Path, language: str, texts: Mapping[str | tuple[str, str], str]) -> Path:
    """`folder/<language>/LC_MESSAGES/tvmscope.mo`; a key of two texts has a plural, and its
    translation both forms, parted by a zero character."""
    entries = {"": HEADER} | {
        k if isinstance(k, str) else "\0".join(k): v for k, v in texts.items()
    }
    pairs = sorted((k.encode(), v.encode()) for k, v in entries.items())
    count, start = len(pairs), 28
    offset = start + 16 * count
    tables: list[bytes] = []
    data = b""
    for column in (0, 1):
        table = b""
        for pair in pairs:
            table += struct.pack("<II", len(pair[column]), offset + len(data))
            data += pair[column] + b"\0"
        tables.append(table)
    head = struct.pack("<7I", _MAGIC, 0, count, start, start + 8 * count, 0, 0)
    file = folder / language / "LC_MESSAGES" / "tvmscope.mo"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(head + tables[0] + tables[1] + data)
    return file


def bracketed(entries: Iterable[Mapping[str, Any]]) -> dict[str | tuple[str, str], str]:
    """A translation of every message of a session's table: the text itself in ⟪ ⟫."""
    found: dict[str | tuple[str, str], str] = {}
    for entry in entries:
        one, many = entry["id"], entry.get("plural")
        if many is None:
            found[one] = f"⟪{one}⟫"
        else:
            found[one, many] = f"⟪{one}⟫\0⟪{many}⟫"
        found |= bracketed(_nested(entry["args"].values()))
    return found


def _nested(args: Iterable[Any]) -> Iterator[Mapping[str, Any]]:
    for arg in args:
        if isinstance(arg, list):
            yield from _nested(arg)
        elif isinstance(arg, dict) and "id" in arg:
            yield arg
