"""Ways to run a model; each file carries its manifests in `BACKENDS`."""

from __future__ import annotations

from tvmscope.backends.api import Backend
from tvmscope.plugins import PluginFailure, discover


def all_backends() -> tuple[dict[str, Backend], list[PluginFailure]]:
    """Every backend by name, and the plug-in files that failed to load."""
    found, failures = discover(__name__, "BACKENDS")
    return {b.name: b for backends in found.values() for b in backends}, failures
