"""Loads modules that the user wrote. This RUNS the user's code: Python files and pickles."""

from __future__ import annotations

import importlib.util
import random
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle
import numpy as np
import torch
from torch import nn

from tvmscope.core.options import LoadOptions
from tvmscope.errors import ImportModelError, TvmscopeError, UsageError, one_line
from tvmscope.messages import msg
from tvmscope.models.api import TorchModel
from tvmscope.models.resolve import Source


def load_python(source: Source, options: LoadOptions) -> TorchModel:
    """Execute a Python file and build its module.

    `file.py` defines `Model`, `get_inputs()` and perhaps `get_init_inputs()` (KernelBench's form);
    `file.py:factory` has a function that returns a module or `(module, inputs)`.
    """
    return _guarded(source, lambda: _build_python(source, options))


def load_pickled(source: Source, options: LoadOptions) -> TorchModel:
    """Unpickle `(module, inputs)` as `pickle_module` wrote it; a pickle can run any code."""

    def build() -> TorchModel:
        module, inputs = cloudpickle.loads(Path(source.ref).read_bytes())
        return _torch_model(source, module, inputs)

    return _guarded(source, build)


def load_exported(source: Source, options: LoadOptions) -> TorchModel:
    """Load a program saved by torch.export.save, with the example inputs that it contains."""
    try:
        program = torch.export.load(source.ref)
    except Exception as e:  # a damaged archive raises anything from KeyError to RuntimeError
        raise ImportModelError(
            msg(
                "'{source}' is not a readable exported program ({reason}); write it with "
                "torch.export.save, by this version of torch",
                source=source.text,
                reason=one_line(e),
            )
        ) from e
    if program.example_inputs is None:
        raise ImportModelError(
            msg(
                "'{source}' contains no example inputs; save the program again with them",
                source=source.text,
            )
        )
    args, kwargs = program.example_inputs
    return TorchModel(
        module=program.module(), args=tuple(args), kwargs=dict(kwargs), weights="file"
    )


def pickle_module(module: nn.Module, inputs: Any, path: Path) -> None:
    """Write an in-memory module and its example inputs for `prepare(..., pickled_module=path)`.

    `inputs` is a tensor, a sequence of positional inputs, or a mapping of keyword inputs.
    """
    _call_form(inputs)
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        path.write_bytes(cloudpickle.dumps((module, inputs)))
    except Exception as e:  # pickling runs the objects' own code
        raise ImportModelError(
            msg(
                "{name} cannot be pickled ({reason}); put it into a file.py with a factory "
                "function instead",
                name=type(module).__name__,
                reason=one_line(e),
            )
        ) from e


def seed_everything(seed: int) -> None:
    """Seed the generators that user code may use."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def _guarded(source: Source, build: Callable[[], TorchModel]) -> TorchModel:
    try:
        return build()
    except TvmscopeError:
        raise
    except Exception as e:  # the user's code may raise anything
        raise ImportModelError(
            msg(
                "'{source}' failed while it ran: {type}: {reason}",
                source=source.text,
                type=type(e).__name__,
                reason=one_line(e),
            )
        ) from e


def _build_python(source: Source, options: LoadOptions) -> TorchModel:
    seed_everything(options.seed)
    module = _execute(Path(source.ref))
    if source.attribute is not None:
        factory = _attribute(module, source.attribute, source)
        seed_everything(options.seed)
        made = factory()
        built, inputs = made if isinstance(made, tuple | list) else (made, None)
    else:
        model, get_init = (
            _attribute(module, "Model", source),
            getattr(module, "get_init_inputs", list),
        )
        seed_everything(options.seed)
        init: Any = get_init()
        built, inputs = model(**init) if isinstance(init, dict) else model(*init), None
    if inputs is None:
        seed_everything(options.seed)
        inputs = _attribute(module, "get_inputs", source)()
    return _torch_model(source, built, inputs)


def _execute(path: Path) -> ModuleType:
    name = f"tvmscope_user_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(msg("'{path}' is not a Python file", path=path.name))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickles look up their module by name
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))  # the file may import its neighbours
    spec.loader.exec_module(module)
    return module


def _attribute(module: ModuleType, name: str, source: Source) -> Any:
    value = getattr(module, name, None)
    if not callable(value):
        raise UsageError(
            msg(
                "'{source}': the file has no {name}(); it must define Model and get_inputs(), "
                "or a function given as file.py:function that returns (module, inputs)",
                source=source.text,
                name=name,
            )
        )
    return value


def _torch_model(source: Source, module: Any, inputs: Any) -> TorchModel:
    if not isinstance(module, nn.Module):
        raise UsageError(
            msg(
                "'{source}' returns a {name}, not an nn.Module",
                source=source.text,
                name=type(module).__name__,
            )
        )
    args, kwargs = _call_form(inputs)
    return TorchModel(module=module, args=args, kwargs=kwargs, weights="file")


def _call_form(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(inputs, torch.Tensor):
        return (inputs,), {}
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    if isinstance(inputs, tuple | list):
        return tuple(inputs), {}
    raise UsageError(
        msg(
            "example inputs are a {name}; give a tensor, a sequence or a mapping",
            name=type(inputs).__name__,
        )
    )
