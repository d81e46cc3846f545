"""Explains CUDA's errors when an artifact is loaded or run, as the loader inside it does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tvmscope.core.artifact import Artifact
from tvmscope.errors import RunError, TvmscopeError
from tvmscope.messages import msg
from tvmscope.runtime import load_model


def meaning(error: Exception, artifact: Artifact) -> RunError | None:
    """Return what an error of CUDA means for the user; None for any other error."""
    if artifact.target.kind != "cuda" or isinstance(error, TvmscopeError):
        return None
    reason = load_model.cause(error, load_model.free_memory)
    if reason is None:
        return None
    return RunError(msg("{folder} cannot run here: {reason}", folder=artifact.path, reason=reason))


@contextmanager
def explained(artifact: Artifact) -> Iterator[None]:
    """Raise what the CUDA errors inside mean; others stay what they are."""
    try:
        yield
    except Exception as e:  # TVM's own types
        found = meaning(e, artifact)
        if found is None:
            raise
        raise found from e
