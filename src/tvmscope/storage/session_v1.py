"""Reads sessions of schema 1, which named a row by its label: finds the key of each label.

The rules for names are those of the versions that wrote such files; nothing else parses a label.
"""

from __future__ import annotations

from typing import Any

from tvmscope.errors import SchemaError
from tvmscope.messages import msg

VERSION = 1
_SHORT = {"fp16": "float16", "bf16": "bfloat16"}

Json = dict[str, Any]
_Place = tuple[str, str]
"""The labels of a variant and of a target."""


def upgraded(data: Json) -> Json:
    """Return the same session in the form of schema 2."""
    rows = [_row(row) for row in _objects(data, "results")]
    keys = {(_label(key["variant"]), key["target"]): key for key in map(_key_of, rows)}
    named = {
        part: [item | {"key": _key(item, keys)} for item in _objects(data, part)]
        for part in ("profiles", "kernel_ir", "fixes")
    }
    compared = [
        item
        | {
            "key": _key(item, keys),
            "against_key": _key(item, keys, "against", "against_target"),
        }
        for item in _objects(data, "comparisons")
    ]
    return data | named | {"schema_version": 2, "results": rows, "comparisons": compared}


def _objects(data: Json, name: str) -> list[Json]:
    items = data.get(name, [])
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise SchemaError(msg("'{name}': expected objects", name=name))
    return items


def _row(row: Json) -> Json:
    task = row.get("task")
    variant = task.get("variant") if isinstance(task, dict) else None
    if not isinstance(task, dict) or not isinstance(variant, dict):
        raise SchemaError(
            msg("'results': expected objects, each with a 'task' that has a 'variant'")
        )
    full = variant | {"family": _family(str(variant.get("backend")))}
    where = str(task.get("target"))
    return row | {"task": task | {"variant": full, "target": where, "device": _device(where)}}


def _key_of(row: Json) -> Json:
    task = row["task"]
    return {name: task[name] for name in ("variant", "target", "device")}


def _key(
    item: Json, known: dict[_Place, Json], backend: str = "backend", target: str = "target"
) -> Json | None:
    """Return the key of the row that an item names; None if it names none."""
    place = str(item.get(backend, "")), str(item.get(target, ""))
    if place == ("", ""):
        return None
    return known.get(place) or _alone(*place)


def _alone(label: str, target: str) -> Json:
    """Return the key of a row without a result, of which only the label is known."""
    backend, *words = label.split(" ")
    variant: Json = {"backend": backend, "family": _family(backend)}
    if words and words[0] in _SHORT:
        variant["precision"] = _SHORT[words.pop(0)]
    for word in ("graph", "fixed"):
        if words and words[0] == word:
            variant[words.pop(0)] = True
    if words:
        variant["change"] = " ".join(words)
    return {"variant": variant, "target": target, "device": _device(target)}


def _label(variant: Json) -> str:
    shorts = {precision: short for short, precision in _SHORT.items()}
    parts = [str(variant.get("backend"))]
    if (precision := variant.get("precision", "float32")) != "float32":
        parts.append(shorts.get(precision, str(precision)))
    parts += [word for word in ("graph", "fixed") if variant.get(word)]
    if variant.get("change") is not None:
        parts.append(variant["change"])
    return " ".join(parts)


def _family(backend: str) -> str:
    families = {"tvmscope": "ours", "tvm": "tvm"}
    return families.get(backend.split("-")[0], "peer")


def _device(target: str) -> str:
    return "cuda" if target.partition(":")[0] == "cuda" else "cpu"
