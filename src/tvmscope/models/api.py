"""The manifest of a built-in model, the result of a loader, and the report of a missing library."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from tvmscope.core.options import LoadOptions
from tvmscope.core.vision import Vision
from tvmscope.errors import BackendUnavailable, one_line
from tvmscope.extras import install as install_command
from tvmscope.messages import Message, Text, msg

if TYPE_CHECKING:
    from torch import nn

EXTRA = install_command("torch")


def random_note(reason: Text) -> Message:
    """Make the remark about a model whose weights are random."""
    return msg(
        "seeded random weights ({reason}): times are valid, predictions are not", reason=reason
    )


@dataclass(frozen=True, kw_only=True)
class TorchModel:
    """A module in eval mode, with one set of example inputs for its `forward`."""

    module: nn.Module
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    weights: Literal["pretrained", "random", "file"]
    notes: tuple[Text, ...] = ()
    vision: Vision | None = None
    """How to run it on images, for models that take them."""


@dataclass(frozen=True, kw_only=True)
class BuiltIn:
    """A built-in model's manifest. Heavy libraries are imported only inside `load`."""

    name: str
    summary: Text
    weights: Text
    """The origin of its weights, for people."""
    load: Callable[[LoadOptions], TorchModel]
    requires: tuple[str, ...] = ("torch",)
    """Modules that it needs; `catalog` says which are missing."""
    install: str = EXTRA
    load_form: Callable[[LoadOptions, str], TorchModel] | None = None
    """For models with several forms: takes the user's text after `name:`."""


def require(*modules: str, install: str = EXTRA) -> None:
    """Import `modules`, or raise `BackendUnavailable` with the command that installs them."""
    for name in modules:
        try:
            importlib.import_module(name)
        except (ImportError, OSError) as e:  # OSError: a shared library of it does not load
            absent = isinstance(e, ModuleNotFoundError) and e.name == name
            reason = (
                msg("is not installed") if absent else msg("does not load ({why})", why=one_line(e))
            )
            raise BackendUnavailable(
                msg(
                    "this model needs {name}, which {reason}: {install}",
                    name=name,
                    reason=reason,
                    install=install,
                )
            ) from e
