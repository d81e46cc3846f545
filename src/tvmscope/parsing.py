"""Parses what users write: durations, fractions, numbers, shapes, lists of targets."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tvmscope.errors import UsageError
from tvmscope.messages import msg

_DURATION_S = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "": 1.0}


def parse_duration_s(text: str) -> float:
    """Parse `10m`, `90s`, `250ms`, `1.5h` or a plain number of seconds."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h|)", text.strip())
    if match is None:
        raise UsageError(msg("'{text}' is not a duration; write 250ms, 10s, 5m or 1h", text=text))
    return float(match[1]) * _DURATION_S[match[2]]


def parse_fraction(text: str) -> float:
    """Parse `5%` or `0.05`."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(%?)", text.strip())
    if match is None:
        raise UsageError(msg("'{text}' is not a fraction; write 5% or 0.05", text=text))
    return float(match[1]) / (100.0 if match[2] else 1.0)


def parse_numbers(text: str) -> tuple[float, ...]:
    """Parse `0.485,0.456,0.406`, `255` or `1/255`; commas separate the numbers."""
    numbers = []
    for part in text.split(","):
        top, slash, bottom = part.partition("/")
        try:
            numbers.append(float(top) / (float(bottom) if slash else 1.0))
        except (ValueError, ZeroDivisionError) as e:
            raise UsageError(
                msg("'{part}' is not a number; write 0.5, 255 or 1/255", part=part.strip())
            ) from e
    return tuple(numbers)


def parse_shapes(texts: list[str]) -> dict[str, tuple[int, ...]]:
    """Parse `x:1x3x224x224`; commas join several; names may have colons, the last one counts."""
    shapes: dict[str, tuple[int, ...]] = {}
    for part in ",".join(texts).split(","):
        if not part.strip():
            continue
        name, colon, dims = part.strip().rpartition(":")
        if not colon or not name or not re.fullmatch(r"\d+(x\d+)*|scalar", dims):
            raise UsageError(
                msg("'{part}' is not a shape; write name:1x3x224x224 (or name:scalar)", part=part)
            )
        shapes[name] = () if dims == "scalar" else tuple(int(d) for d in dims.split("x"))
    return shapes


def parse_device(text: str) -> tuple[str, int | None]:
    """Parse `cpu`, `cuda` or `cuda:1`; PyTorch's and TVM's other words for them are taken too."""
    match = re.fullmatch(r"(cpu|llvm)|(?:cuda|gpu)(?::(\d+))?", text.strip())
    if match is None:
        raise UsageError(
            msg(
                "unknown device '{text}'; use cpu, cuda or cuda:1; what to compile for is --target",
                text=text,
            )
        )
    return "cpu" if match[1] else "cuda", None if match[2] is None else int(match[2])


def split_targets(texts: Iterable[str]) -> tuple[str, ...]:
    """Split plain names at commas, but not JSON or old strings (`llvm -mattr=+avx2,+fma`)."""
    found: list[str] = []
    for text in texts:
        plain = re.fullmatch(r"[\w:.-]+(,[\w:.-]+)*", text.strip())
        found += text.strip().split(",") if plain else [text]
    return tuple(found)


def parse_assignments(texts: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """Parse `factor=8,16` and `factor=8,unroll=2` to the values of each name, in order."""
    found: dict[str, tuple[int, ...]] = {}
    for text in texts:
        name = ""
        for part in text.replace(" ", "").split(","):
            left, equals, right = part.rpartition("=")
            name = left if equals else name
            if not name.isidentifier() or not right.lstrip("-").isdigit():
                raise UsageError(
                    msg("cannot read '{text}'; write name=8 or name=8,16,32", text=text)
                )
            found[name] = (*found.get(name, ()), int(right))
    return found


_BYTES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def parse_bytes(text: str) -> int:
    """Parse `8G`, `500M`, `1.5GiB` or a plain number of bytes."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kmgt]?)(i?b)?", text.strip().lower())
    if match is None or not float(match[1]):
        raise UsageError(msg("'{text}' is not a size; write 8G or 500M", text=text))
    return int(float(match[1]) * _BYTES[match[2]])
