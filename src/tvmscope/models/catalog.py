"""The built-in models, found by their files, without importing torch."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from functools import cache

from tvmscope.messages import Text, msg
from tvmscope.models.api import BuiltIn
from tvmscope.plugins import Merged, PluginFailure, discover, merged


@dataclass(frozen=True)
class Entry:
    """A line of the `models` command; `missing` says how to get what it needs, None if ready."""

    name: str
    summary: Text
    weights: Text
    missing: Text | None


@cache
def _discovered() -> tuple[dict[str, BuiltIn], tuple[PluginFailure, ...]]:
    found, failures = discover("tvmscope.models.built_in", "MODEL")
    return {manifest.name: manifest for manifest in found.values()}, tuple(failures)


def known() -> Merged[BuiltIn]:
    """Return every model by name, those of other packages last, and the failures."""
    built_in, failures = _discovered()
    every = merged("model", built_in, BuiltIn, lambda model: model.name)
    return Merged(every.manifests, every.plugins, (*failures, *every.failures))


def built_ins() -> dict[str, BuiltIn]:
    """Return manifests by model name."""
    return known().manifests


def failures() -> tuple[PluginFailure, ...]:
    """Return models that did not load, for `doctor`."""
    return known().failures


def catalog() -> list[Entry]:
    """Return all built-in models, for people."""
    return [Entry(m.name, m.summary, m.weights, _missing(m)) for m in built_ins().values()]


def _missing(model: BuiltIn) -> Text | None:
    absent = [name for name in model.requires if importlib.util.find_spec(name) is None]
    return msg("needs {names}: {install}", names=absent, install=model.install) if absent else None
