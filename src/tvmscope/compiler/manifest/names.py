"""Checks the names of manifests: their form, and that each is unique."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Protocol, TypeVar

_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


class Named(Protocol):
    """An object with a public name."""

    @property
    def name(self) -> str:
        """The name, in kebab case."""


T = TypeVar("T", bound=Named)


def check_name(name: str, what: str) -> None:
    """Raise if the name cannot be typed after a flag."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"{what} {name!r}: a name has small letters, digits and hyphens")


def check_text(text: str, what: str) -> None:
    """Raise if a manifest has no description."""
    if not text.strip():
        raise ValueError(f"{what}: it has no words for people")


def unique(manifests: Iterable[T], origin: str) -> tuple[T, ...]:
    """Return the manifests in their order; raise if two have one name."""
    found: dict[str, T] = {}
    for manifest in manifests:
        if manifest.name in found:
            raise ValueError(f"{origin}: the name '{manifest.name}' is given twice")
        found[manifest.name] = manifest
    return tuple(found.values())
