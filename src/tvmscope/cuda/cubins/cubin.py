"""Reads registers and local memory of a kernel from its cubin (an ELF file) without a tool.

`.nv.info` is a list of attributes: format, number, size, value. REGCOUNT and FRAME_SIZE contain
pairs (symbol index, value). A frame in local memory means that registers were spilled or that an
array is indexed at run time; Triton's kernels have no such arrays.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from tvmscope.errors import SchemaError
from tvmscope.messages import msg

_REGCOUNT = 0x2F
_FRAME_SIZE = 0x11
_SIZED = 0x04


@dataclass(frozen=True, kw_only=True)
class Resources:
    """The resources of a multiprocessor that a kernel takes, apart from shared memory."""

    registers: int
    """Registers per thread."""
    local_bytes: int
    """Local memory per thread; more than 0 means spills."""


def resources(cubin: bytes, kernel: str) -> Resources:
    """Return the resources of `kernel`; raise if the file does not contain them."""
    parts = sections(cubin)
    names = _symbols(cubin, parts)
    found: dict[int, int] = {}
    for section in parts:
        if section.name == ".nv.info":
            body = cubin[section.offset : section.offset + section.size]
            for number, symbol, value in _attributes(body):
                if names.get(symbol) == kernel:
                    found[number] = value
    if _REGCOUNT not in found:
        raise SchemaError(
            msg("the cubin does not say how many registers '{kernel}' takes", kernel=kernel)
        )
    return Resources(registers=found[_REGCOUNT], local_bytes=found.get(_FRAME_SIZE, 0))


@dataclass(frozen=True)
class Section:
    """A part of an ELF file."""

    name: str
    kind: int
    offset: int
    size: int
    link: int
    entry: int


def sections(data: bytes) -> list[Section]:
    """Return the parts of a 64-bit ELF file; raise if it is none."""
    if data[:5] != b"\x7fELF\x02":
        raise SchemaError(msg("not a cubin: no 64-bit ELF header"))
    (start,) = struct.unpack_from("<Q", data, 0x28)
    entry, count, names = struct.unpack_from("<HHH", data, 0x3A)
    raw = [struct.unpack_from("<IIQQQQIIQQ", data, start + i * entry) for i in range(count)]
    text = raw[names][4]
    return [
        Section(
            _string(data, text + s[0]), kind=s[1], offset=s[4], size=s[5], link=s[6], entry=s[9]
        )
        for s in raw
    ]


def _symbols(data: bytes, parts: list[Section]) -> dict[int, str]:
    for section in parts:
        if section.kind == 2:  # SHT_SYMTAB
            text = parts[section.link].offset
            starts = range(section.offset, section.offset + section.size, section.entry)
            names = (struct.unpack_from("<I", data, start)[0] for start in starts)
            return {i: _string(data, text + name) for i, name in enumerate(names)}
    return {}


def _attributes(body: bytes) -> list[tuple[int, int, int]]:
    """Return (attribute, symbol, value) of the attributes that have such pairs."""
    out, at = [], 0
    while at + 4 <= len(body):
        form, number, size = struct.unpack_from("<BBH", body, at)
        at += 4
        if form == _SIZED:
            if number in (_REGCOUNT, _FRAME_SIZE) and size >= 8:
                out.append((number, *struct.unpack_from("<II", body, at)))
            at += size
    return out


def _string(data: bytes, at: int) -> str:
    return data[at : data.index(b"\0", at)].decode()
