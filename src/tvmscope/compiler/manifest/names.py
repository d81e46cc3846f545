"""Checks the names of manifests: their form, and that each is unique."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Protocol, TypeVar

_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


class Named(Protocol):
    """What has a public name."""

    @property
    def name(self) -> str:
        """In kebab case."""


T = TypeVar("T", bound=Named)


def check_name(name: str, what: str) -> None:
    """A name that cannot be typed after a flag is an error."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"{what} {name!r}: a name has small letters, digits and hyphens")


def check_text(text: str, what: str) -> None:
    """A manifest without its words is an error."""
    if not text.strip():
        raise ValueError(f"{what}: it has no words for people")


def unique(manifests: Iterable[T], origin: str) -> tuple[T, ...]:
    """The manifests in their order; two of one name are an error."""
    found: dict[str, T] = {}
    for manifest in manifests:
        if manifest.name in found:
            raise ValueError(f"{origin}: the name '{manifest.name}' is given twice")
        found[manifest.name] = manifest
    return tuple(found.values())
