"""Inserts items of other packages into an ordered list, next to the anchor that each names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, Protocol, TypeVar

from tvmscope.messages import msg
from tvmscope.plugins import Brought, Plugin, PluginFailure, described, remember, taken


class Anchored(Protocol):
    """Something with a name that is ordered before or after another one."""

    @property
    def name(self) -> str:
        """A public name, unique in its list."""

    @property
    def before(self) -> str | None:
        """The name that this item precedes."""

    @property
    def after(self) -> str | None:
        """The name that this item follows."""


T = TypeVar("T", bound=Anchored)


@dataclass(frozen=True)
class Ordered(Generic[T]):
    """A list with the items of other packages inserted at their anchors."""

    manifests: tuple[T, ...]
    plugins: dict[str, Plugin] = field(default_factory=dict)
    """The package that brought each item which is not built in."""
    failures: tuple[PluginFailure, ...] = ()


def placed(
    built_in: Sequence[T],
    brought: Iterable[Brought[T]],
    check: Callable[[Sequence[T]], str | None] = lambda _: None,
) -> Ordered[T]:
    """Put each item directly beside its anchor; several at one anchor are ordered by name.

    An anchor may itself come from another package. `check` says why a list is invalid.
    """
    found: list[T] = list(built_in)
    plugins: dict[str, Plugin] = {}
    waiting, failures = list(brought), list[PluginFailure]()
    while waiting:
        ready = [each for each in waiting if _anchor(each.manifest) in _names(found)]
        for each in ready or waiting:
            reason = _insert(found, plugins, each, check)
            if reason is not None:
                failures.append(reason)
        waiting = [each for each in waiting if each not in ready] if ready else []
    return Ordered(tuple(found), plugins, remember(failures))


def _insert(
    found: list[T],
    plugins: dict[str, Plugin],
    each: Brought[T],
    check: Callable[[Sequence[T]], str | None],
) -> PluginFailure | None:
    """Insert one item into the list, or say why it is left out."""
    manifest, plugin = each.manifest, each.plugin
    names, anchor = _names(found), _anchor(manifest)
    if manifest.name in names:
        return taken(plugin, manifest.name, plugins.get(manifest.name))
    if anchor is None:
        return PluginFailure(described(plugin), msg("it names no anchor: give before= or after="))
    if anchor not in names:
        return PluginFailure(
            described(plugin), msg("its anchor '{anchor}' is not there", anchor=anchor)
        )
    index = names.index(anchor)
    if manifest.after is not None:
        index += 1
        while index < len(found) and found[index].after == anchor:
            index += 1
    tried = [*found[:index], manifest, *found[index:]]
    if (problem := check(tried)) is not None:
        return PluginFailure(described(plugin), problem)
    found[:] = tried
    plugins[manifest.name] = replace(plugin, name=manifest.name)
    return None


def _anchor(manifest: Anchored) -> str | None:
    return manifest.before if manifest.after is None else manifest.after


def _names(found: Iterable[Anchored]) -> list[str]:
    return [manifest.name for manifest in found]
