"""Rebuilds the original torch module of a prepared folder, in a worker process."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from tvmscope.core.options import LoadOptions
from tvmscope.errors import RunError
from tvmscope.messages import msg
from tvmscope.models.api import require
from tvmscope.models.folder import read_origin, read_prepared
from tvmscope.storage.files import map_npz

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor, nn


class LoadedModule(NamedTuple):
    """`flatten(module(*args))` returns the outputs by name; `args` follow `Model.inputs`."""

    module: nn.Module
    args: tuple[Tensor, ...]
    flatten: Callable[[Any], dict[str, Tensor]]

    @property
    def inner(self) -> nn.Module:
        """The user's own module, without adapters."""
        module = self.module
        while type(module).__name__ == "Adapter":
            module = module.module  # type: ignore[assignment]  # an adapter's only child
        return module

    @property
    def kwargs(self) -> dict[str, Tensor]:
        """Always empty: modules that take keywords are wrapped, to be called by position."""
        return {}


def load_module(folder: str) -> LoadedModule:
    """Return the user's own module in eval mode on the CPU (an exported program only for .pt2).

    This EXECUTES the source: a Python file is run, a pickle is loaded.
    """
    require("torch")
    import torch

    from tvmscope.models.digest import state_digest
    from tvmscope.models.flat import flat_call, flatten
    from tvmscope.models.loaders.load import load_torch

    prepared, origin = read_prepared(folder), read_origin(folder)
    # a model that was random then must not become a download now
    options = LoadOptions(seed=origin.seed, offline=prepared.model.weights == "random")
    with contextlib.redirect_stdout(sys.stderr):
        loaded = load_torch(origin.source, options)
    if state_digest(loaded.module) != origin.state_digest:
        raise RunError(
            msg(
                "'{source}' no longer has the weights it was prepared with; its file changed, "
                "or it draws random numbers that the seed does not control: prepare it again",
                source=origin.source.text,
            )
        )
    call = flat_call(loaded.module, loaded.args, loaded.kwargs)
    arrays = map_npz(prepared.inputs_path)
    inputs = tuple(torch.from_numpy(arrays[name]) for name in call.names)
    return LoadedModule(call.module, inputs, flatten)


def pickle_module(module: nn.Module, inputs: Any, path: Path) -> None:
    """Write an in-memory module and its example inputs for `prepare(..., pickled_module=path)`.

    `inputs` is a tensor, a sequence of positional inputs, or a mapping of keyword inputs.
    """
    require("torch")
    from tvmscope.models.loaders import user_code

    user_code.pickle_module(module, inputs, path)
