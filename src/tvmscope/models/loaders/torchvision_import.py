"""Imports torchvision, also where its compiled operators cannot be loaded."""

from __future__ import annotations

from types import ModuleType

from tvmscope.errors import BackendUnavailable, one_line
from tvmscope.messages import msg
from tvmscope.runtime.torchvision_operators import make_importable


def import_torchvision() -> ModuleType:
    """Return the torchvision package, with its operators declared."""
    make_importable()
    try:
        import torchvision
    except (ImportError, RuntimeError) as e:  # RuntimeError: an operator mismatch with torch
        raise BackendUnavailable(
            msg(
                "torchvision cannot be imported ({reason}); pip install 'tvmscope[torch]'",
                reason=one_line(e),
            )
        ) from e
    package: ModuleType = torchvision
    return package
