"""Lists the extensions of each kind, and the packages that provide them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tvmscope import backends
from tvmscope.compiler import passes, schedules
from tvmscope.diagnose import engine
from tvmscope.messages import Text, msg
from tvmscope.models import catalog
from tvmscope.plugins import Plugin, PluginFailure, discover
from tvmscope.report import renderers


@dataclass(frozen=True)
class Kind:
    """All items of a kind, by their names in flags and files."""

    label: Text
    built_in: tuple[str, ...]
    plugins: tuple[Plugin, ...] = ()
    failures: tuple[PluginFailure, ...] = ()


def inventory() -> Iterator[Kind]:
    """Yield every kind."""
    for label, every in (
        (msg("backends"), backends.known()),
        (msg("models"), catalog.known()),
        (msg("report"), renderers.known()),
        (msg("diagnosis rules"), engine.known()),
    ):
        names = tuple(name for name in every.manifests if name not in every.plugins)
        yield Kind(label, names, tuple(every.plugins.values()), every.failures)
    found = passes.ordered()
    names = tuple(each.name for each in passes.PASSES)
    yield Kind(msg("passes"), names, tuple(found.plugins.values()), found.failures)
    brought = schedules.plugins()
    names = tuple(rule.name for rule in schedules.all_rules() if rule.name not in brought)
    yield Kind(msg("schedule rules"), names, tuple(brought.values()), schedules.failures())
    commands, failures = discover("tvmscope.cli.commands", "COMMAND")
    yield Kind(msg("cli"), tuple(commands), (), tuple(failures))
