"""Ways to run a model; each file has its manifests in `BACKENDS`.

The stages plan rows with them and load them in workers; a backend's library is imported only inside
functions.
"""

from __future__ import annotations

from tvmscope.backends.api import Backend
from tvmscope.plugins import Merged, PluginFailure, discover, merged


def known() -> Merged[Backend]:
    """Return every backend by name, those of other packages last, and the failures."""
    found, failures = discover(__name__, "BACKENDS")
    built_in = {b.name: b for backends in found.values() for b in backends}
    every = merged("backend", built_in, Backend, lambda backend: backend.name)
    return Merged(every.manifests, every.plugins, (*failures, *every.failures))


def all_backends() -> tuple[dict[str, Backend], list[PluginFailure]]:
    """Return every backend by name, and the plug-ins that failed to load."""
    every = known()
    return every.manifests, list(every.failures)
