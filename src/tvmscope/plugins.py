"""Finds the program's extensions: files of its own packages, and entry points of other packages.

Built-in manifests are found by file, so that a source tree without metadata works. Another
installed package provides manifests through entry points (`GROUPS`), whose names are the manifests'
own. One that does not load, or whose name is taken, is a failure with a reason and not a crash.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tvmscope.errors import one_line
from tvmscope.messages import Text, marked, msg, word

if TYPE_CHECKING:
    from importlib import metadata

GROUPS = {
    marked("backend"): "tvmscope.backends",
    marked("schedule rule"): "tvmscope.schedule_rules",
    "pass": "tvmscope.passes",
    marked("diagnosis rule"): "tvmscope.diagnosis_rules",
    marked("format"): "tvmscope.formats",
    marked("model"): "tvmscope.models",
}
"""The entry-point group of each kind of manifest."""

T = TypeVar("T")


@dataclass(frozen=True)
class PluginFailure:
    """A plug-in that is left out; `doctor` shows it."""

    module: str
    reason: Text

    def __str__(self) -> str:
        return f"{self.module}: {self.reason}"


@dataclass(frozen=True, kw_only=True)
class Plugin:
    """A manifest that another distribution provides."""

    kind: str
    name: str
    distribution: str
    version: str

    @property
    def origin(self) -> str:
        """The distribution and its version: `fast-rules 1.2`."""
        return f"{self.distribution} {self.version}"


@dataclass(frozen=True)
class Brought(Generic[T]):
    """A manifest and its provider."""

    manifest: T
    plugin: Plugin


@dataclass(frozen=True)
class Found(Generic[T]):
    """The manifests of a kind that were found, and those that were left out."""

    brought: tuple[Brought[T], ...] = ()
    failures: tuple[PluginFailure, ...] = ()


@dataclass(frozen=True)
class Merged(Generic[T]):
    """The built-in manifests of a kind by name, followed by those of other packages."""

    manifests: dict[str, T]
    plugins: dict[str, Plugin] = field(default_factory=dict)
    """The providers of those that are not built in."""
    failures: tuple[PluginFailure, ...] = ()


_allowed = True
_failed: dict[PluginFailure, None] = {}


def allow(yes: bool) -> None:
    """Use or ignore the manifests of other packages; also search for them again."""
    global _allowed
    _allowed = yes
    _failed.clear()
    _entry_points.cache_clear()
    _outside.cache_clear()


def allowed() -> bool:
    """Whether the manifests of other packages are used."""
    return _allowed


def failures() -> tuple[PluginFailure, ...]:
    """Return the manifests of other packages that this process has left out so far."""
    return tuple(_failed)


def remember(found: Iterable[PluginFailure]) -> tuple[PluginFailure, ...]:
    """Report each failure to the user once, at the end."""
    kept = tuple(found)
    _failed.update(dict.fromkeys(kept))
    return kept


def names(kind: str) -> list[str]:
    """Return the names of other packages' manifests of a kind; nothing is imported."""
    return sorted(point.name for point in _entry_points(kind))


def identities() -> list[str]:
    """Return all manifests of other packages, with versions, for keys of caches; nothing is
    imported, and a machine without plug-ins keeps its keys."""
    every = (_plugin(kind, point) for kind in GROUPS for point in _entry_points(kind))
    return sorted(described(plugin) for plugin in every)


def outside(kind: str, expected: type[T]) -> Found[T]:
    """Return other packages' manifests of a kind, in the order of their names; loaded once."""
    found: Found[T] = _outside(kind, expected)  # type: ignore[arg-type]  # a type is hashable
    return found


@cache
def _outside(kind: str, expected: type[Any]) -> Found[Any]:
    brought: list[Brought[Any]] = []
    failures: list[PluginFailure] = []
    loaded = (pair for point in _entry_points(kind) for pair in _load(kind, point))
    for plugin, value in loaded:
        if isinstance(value, expected):
            brought.append(Brought(value, plugin))
        else:
            reason = (
                value if isinstance(value, str) else msg("it is no {kind}", kind=expected.__name__)
            )
            failures.append(PluginFailure(described(plugin), reason))
    return Found(tuple(brought), remember(failures))


def merged(
    kind: str, built_in: Mapping[str, T], expected: type[T], name_of: Callable[[T], str]
) -> Merged[T]:
    """Merge built-in manifests with those of other packages; the first owner keeps a name."""
    found = outside(kind, expected)
    manifests, plugins, failures = dict(built_in), dict[str, Plugin](), list(found.failures)
    for each in found.brought:
        name = name_of(each.manifest)
        if name in manifests:
            failures.append(taken(each.plugin, name, plugins.get(name)))
            continue
        manifests[name], plugins[name] = each.manifest, replace(each.plugin, name=name)
    return Merged(manifests, plugins, remember(failures))


def taken(plugin: Plugin, name: str, owner: Plugin | None) -> PluginFailure:
    """Make the failure of a manifest whose name is taken."""
    whose = msg("is built in") if owner is None else msg("is brought by {who}", who=owner.origin)
    # alone, "pass" is what a check does, and has the translation of that
    kind = plugin.kind if plugin.kind == "pass" else word(plugin.kind)
    reason = msg(
        "the name '{name}' is taken: the {kind} of that name {whose}",
        name=name, kind=kind, whose=whose,
    )  # fmt: skip
    return PluginFailure(described(plugin), reason)


def described(plugin: Plugin) -> str:
    """Format `pass mine of fast-rules 1.2`."""
    return f"{plugin.kind} {plugin.name} of {plugin.origin}"


@cache
def _entry_points(kind: str) -> tuple[metadata.EntryPoint, ...]:
    if not _allowed:
        return ()
    from importlib import metadata  # takes as long as a worker's other imports together

    return tuple(
        sorted(
            metadata.entry_points(group=GROUPS[kind]), key=lambda point: (point.name, point.value)
        )
    )


def _load(kind: str, point: metadata.EntryPoint) -> Iterator[tuple[Plugin, Any]]:
    """Yield an entry point's manifests; if it does not load, a text with the reason."""
    plugin = _plugin(kind, point)
    try:
        value = point.load()
    except Exception as e:  # a broken plug-in must not end the program
        yield plugin, f"{type(e).__name__}: {one_line(e)}"
        return
    for manifest in value if isinstance(value, tuple) else (value,):
        yield plugin, manifest


def _plugin(kind: str, point: metadata.EntryPoint) -> Plugin:
    dist = point.dist
    return Plugin(
        kind=kind,
        name=point.name,
        distribution=dist.name if dist else "an unknown distribution",
        version=dist.version if dist else "?",
    )


def discover(package: str, attribute: str) -> tuple[dict[str, Any], list[PluginFailure]]:
    """Map module names to their `attribute`, for each module of `package` that has one."""
    root = importlib.import_module(package)
    found: dict[str, Any] = {}
    failures: list[PluginFailure] = []
    for info in sorted(pkgutil.iter_modules(root.__path__), key=lambda i: i.name):
        if info.name.startswith("_"):
            continue
        name = f"{package}.{info.name}"
        try:
            module = importlib.import_module(name)
        except Exception as e:  # a broken plug-in must not end the program
            failures.append(PluginFailure(name, f"{type(e).__name__}: {one_line(e)}"))
            continue
        manifest = getattr(module, attribute, None)
        if manifest is not None:
            found[info.name] = manifest
    return found, failures
