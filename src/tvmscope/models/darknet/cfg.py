"""Reads darknet's `model.cfg` text: a list of layers with their settings, and the anchor boxes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tvmscope.core.vision import Anchors
from tvmscope.errors import ImportModelError, UsageError
from tvmscope.messages import Text, msg

WEIGHTS_SUFFIX = ".weights"
FORMS = ("concat", "scatter", "raw")
"""How boxes are decoded: concatenated, assigned in place (ScatterND in ONNX), or not at all."""

Number = TypeVar("Number", int, float)


@dataclass(frozen=True)
class Section:
    """A `[name]` of the file with its `key=value` lines."""

    name: str
    values: dict[str, str]
    line: int

    def whole(self, key: str, default: int | None = None) -> int:
        """Return a whole number; without a default it must exist."""
        return self._number(key, default, int)

    def real(self, key: str, default: float) -> float:
        """Return a number."""
        return self._number(key, default, float)

    def wholes(self, key: str) -> list[int]:
        """Return whole numbers separated by commas; none if the key is missing."""
        return [int(x) for x in self._numbers(key)]

    def reals(self, key: str) -> list[float]:
        """Return numbers separated by commas; none if the key is missing."""
        return self._numbers(key)

    def problem(self, text: Text) -> ImportModelError:
        """Make an error that says where in the file it is."""
        return ImportModelError(
            msg(
                "[{section}] in line {line} of the .cfg: {text}",
                section=self.name,
                line=self.line,
                text=text,
            )
        )

    def _number(self, key: str, default: Number | None, kind: Callable[[str], Number]) -> Number:
        if key not in self.values:
            if default is None:
                raise self.problem(msg("'{key}' is missing", key=key))
            return default
        try:
            return kind(self.values[key])
        except ValueError as e:
            raise self.problem(
                msg("{key}={value} is not a number", key=key, value=self.values[key])
            ) from e

    def _numbers(self, key: str) -> list[float]:
        parts = [part for part in self.values.get(key, "").split(",") if part.strip()]
        try:
            return [float(part) for part in parts]
        except ValueError as e:
            raise self.problem(
                msg("{key}={value} are not numbers", key=key, value=self.values[key])
            ) from e


def parse(text: str) -> tuple[Section, list[Section]]:
    """Return the `[net]` section and the layers after it."""
    sections: list[Section] = []
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.split("#")[0].split(";")[0].strip()
        if line.startswith("[") and line.endswith("]"):
            sections.append(Section(line[1:-1].strip().lower(), {}, number))
        elif line:
            key, equals, value = line.partition("=")
            if not equals or not sections:
                raise ImportModelError(
                    msg(
                        "line {number} of the .cfg is not a setting: '{line}'",
                        number=number,
                        line=line[:60],
                    )
                )
            sections[-1].values[key.strip()] = value.strip()
    if not sections or sections[0].name not in ("net", "network"):
        raise ImportModelError(msg("the .cfg does not begin with [net]: not a darknet network"))
    return sections[0], sections[1:]


def read_text(path: Path) -> str:
    """Return the file's text; raise a clear error if it is not a text file."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as e:
        raise ImportModelError(
            msg("'{path}' cannot be read as a .cfg: {reason}", path=path, reason=str(e))
        ) from e


def anchors(layers: list[Section]) -> tuple[Anchors, ...]:
    """Return one entry per `[yolo]` layer, in order."""
    return tuple(_anchors(layer) for layer in layers if layer.name == "yolo")


def _anchors(layer: Section) -> Anchors:
    if layer.whole("new_coords", 0):
        raise layer.problem(msg("new_coords=1 (scaled YOLOv4) is not supported"))
    numbers = layer.reals("anchors")
    pairs = list(zip(numbers[::2], numbers[1::2], strict=False))
    mask = layer.wholes("mask") or list(range(len(pairs)))
    if not pairs or len(numbers) % 2 or not all(0 <= m < len(pairs) for m in mask):
        raise layer.problem(msg("anchors and mask do not fit together"))
    return Anchors(tuple(pairs[m] for m in mask), layer.real("scale_x_y", 1.0))


@dataclass(frozen=True)
class Parts:
    """The suffixes of a darknet model's name: `:file.weights`, `:scatter`, or both."""

    weights: str | None = None
    form: str = FORMS[0]

    def __str__(self) -> str:
        form = None if self.form == FORMS[0] else self.form
        return ":".join(part for part in (self.weights, form) if part)


def parse_parts(text: str) -> Parts:
    """Parse the suffixes; a weights file becomes an absolute path, so that any process finds it."""
    found = Parts()
    for part in filter(None, text.split(":")):
        if part in FORMS:
            found = Parts(found.weights, part)
        elif part.endswith(WEIGHTS_SUFFIX):
            path = Path(part).expanduser()
            if not path.is_file():
                raise UsageError(msg("there is no weights file '{part}'", part=part))
            found = Parts(str(path.resolve()), found.form)
        else:
            raise UsageError(
                msg(
                    "'{part}' after a darknet model is neither a {suffix} file nor one of {forms}",
                    part=part,
                    suffix=WEIGHTS_SUFFIX,
                    forms=FORMS,
                )
            )
    return found
