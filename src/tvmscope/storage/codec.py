"""Converts frozen dataclasses to JSON values and back, by their type hints.

A class with `to_json` and `from_json` has its own form.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from tvmscope.errors import SchemaError
from tvmscope.messages import Message, msg

T = TypeVar("T")
Messages = Mapping[str, Message]
_NONE: Messages = {}


def encode(value: Any) -> Any:
    """Return a JSON value: dataclasses become objects, tuples arrays, paths strings.

    A message stays a message, which is a string; `storage.message_table` stores its parts.
    """
    if hasattr(value, "to_json"):
        return value.to_json()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: encode(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(k): encode(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [encode(v) for v in value]
    return str(value) if isinstance(value, Path) else value


def decode(cls: type[T], data: Any, messages: Messages = _NONE) -> T:
    """Return the dataclass `cls` from a JSON object; ignore unknown keys, raise for missing ones.

    Texts that are sentences of `messages` become these messages again.
    """
    if not isinstance(data, dict):
        raise SchemaError(
            msg(
                "{type}: expected an object, got {found}",
                type=cls.__name__,
                found=type(data).__name__,
            )
        )
    values: dict[str, Any] = {}
    hints = _hints(typing.cast(Any, cls))
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]  # T is always a dataclass
        if field.name in data:
            values[field.name] = _decode(hints[field.name], data[field.name], field.name, messages)
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise SchemaError(
                msg("{type}: '{name}' is missing", type=cls.__name__, name=field.name)
            )
    return cls(**values)


@cache
def _hints(cls: Any) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _decode_any(hints: list[Any], data: Any, where: str, messages: Messages) -> Any:
    """Decode with the first hint that fits."""
    *others, last = hints
    for hint in others:
        try:
            return _decode(hint, data, where, messages)
        except SchemaError:
            continue
    return _decode(last, data, where, messages)


def _decode(hint: Any, data: Any, where: str, messages: Messages) -> Any:
    if hint is Any or type(data) is hint:  # most values; examining the hint takes ten times longer
        return data
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        if data is None and type(None) in args:
            return None
        if isinstance(data, str) and Message in args:
            return messages.get(data, data)
        return _decode_any([a for a in args if a is not type(None)], data, where, messages)
    if origin is typing.Literal:
        if data not in args:
            raise SchemaError(
                msg(
                    "'{where}': {data} is none of {known}",
                    where=where,
                    data=repr(data),
                    known=[*map(str, args)],
                )
            )
        return data
    if origin is tuple:
        if not isinstance(data, list):
            raise SchemaError(
                msg(
                    "'{where}': expected an array, got {found}",
                    where=where,
                    found=type(data).__name__,
                )
            )
        inner = args[:1] * len(data) if args[-1] is Ellipsis else args
        if len(inner) != len(data):
            raise SchemaError(
                msg(
                    "'{where}': expected {wanted} values, got {found}",
                    where=where,
                    wanted=len(inner),
                    found=len(data),
                )
            )
        return tuple(_decode(a, d, where, messages) for a, d in zip(inner, data, strict=True))
    if origin is dict:
        if not isinstance(data, dict):
            raise SchemaError(
                msg(
                    "'{where}': expected an object, got {found}",
                    where=where,
                    found=type(data).__name__,
                )
            )
        return {k: _decode(args[1], v, where, messages) for k, v in data.items()}
    if hasattr(hint, "from_json"):
        return hint.from_json(data)
    if dataclasses.is_dataclass(hint):
        return decode(typing.cast(type[Any], hint), data, messages)
    if hint is Path:
        return Path(data)
    if hint is float and isinstance(data, int | float) and not isinstance(data, bool):
        return float(data)
    if isinstance(hint, type) and hint is not object and not isinstance(data, hint):
        raise SchemaError(
            msg(
                "'{where}': expected {type}, got {found}",
                where=where,
                type=hint.__name__,
                found=type(data).__name__,
            )
        )
    return data
