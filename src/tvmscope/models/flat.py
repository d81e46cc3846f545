"""Wraps any module so that it takes tensors by position and returns tensors by name."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from tvmscope.errors import UsageError
from tvmscope.messages import msg

_PLAIN = (tuple, list, dict)


@dataclass(frozen=True)
class Call:
    """A module that is called as `module(*tensors)`; `names` are the parameters of its forward."""

    module: nn.Module
    names: tuple[str, ...]
    tensors: tuple[Tensor, ...]


class Adapter(nn.Module):
    """Calls `module` with flat tensors; torch.export takes its input names from the signature."""

    def __init__(
        self, module: nn.Module, names: tuple[str, ...], run: Callable[[tuple[Tensor, ...]], Any]
    ) -> None:
        super().__init__()
        self.module = module  # registered, so that weights are found and moved with it
        self.training = module.training

        def forward(*tensors: Tensor) -> Any:
            return run(tensors)

        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        # torch.export reads it; the type of functions lacks this attribute
        forward.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [inspect.Parameter(name, kind) for name in names]
        )
        self.forward = forward


def flat_call(module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Call:
    """Name every tensor in the inputs; wrap the module unless it takes them by position already.

    Nested tensors are named by their path; other values stay as in the example.
    """
    try:
        inspect.signature(module.forward).bind(*args, **kwargs)
    except TypeError as e:
        raise UsageError(
            msg(
                "the example inputs do not fit {module}.forward: {reason}",
                module=type(module).__name__,
                reason=str(e),
            )
        ) from e
    paths, leaves, names = [], [], []
    leaves_with_paths, spec = pytree.tree_flatten_with_path((args, dict(kwargs)))
    for path, leaf in leaves_with_paths:
        paths.append(path)
        leaves.append(leaf)
        if isinstance(leaf, Tensor):
            names.append(_input_name(module, path))
    where = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
    tensors = tuple(leaves[i] for i in where)
    if len(set(names)) != len(names):
        names = [f"{name}_{i}" for i, name in enumerate(names)]
    if not kwargs and len(where) == len(leaves) and all(len(path) == 2 for path in paths):
        return Call(module, tuple(names), tensors)

    def run(flat: tuple[Tensor, ...]) -> Any:
        filled = list(leaves)
        for i, tensor in zip(where, flat, strict=True):
            filled[i] = tensor
        inner_args, inner_kwargs = pytree.tree_unflatten(filled, spec)
        return module(*inner_args, **inner_kwargs)

    return Call(Adapter(module, tuple(names), run), tuple(names), tensors)


def flat_outputs(call: Call) -> Call:
    """Return the call with a plain tuple of tensors as its result, in the order of `flatten`."""
    module = call.module

    def run(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return tuple(flatten(module(*tensors)).values())

    return Call(Adapter(module, call.names, run), call.names, call.tensors)


def wrappers(module: nn.Module) -> int:
    """Return how many adapters are around the user's own module."""
    return 1 + wrappers(module.module) if isinstance(module, Adapter) else 0


def is_plain(outputs: Any) -> bool:
    """Whether outputs are tensors in plain tuples, lists and dicts, which all tools support."""
    if isinstance(outputs, Tensor):
        return True
    inner = outputs.values() if isinstance(outputs, dict) else outputs
    return type(outputs) in _PLAIN and all(is_plain(value) for value in inner)


def flatten(outputs: Any) -> dict[str, Tensor]:
    """Return tensors by name: `output_0`, `output_1`, keys of a dict or dataclass, nested `a.0`."""
    named: dict[str, Tensor] = {}
    for path, tensor in _walk(outputs, ()):
        head = str(path[0]) if path else "0"
        name = ".".join([f"output_{head}" if head.isdigit() else head, *map(str, path[1:])])
        named[name] = tensor
    return named


def to_numpy(tensor: Tensor) -> np.ndarray[Any, Any]:
    """Convert to a numpy array, which may share the tensor's memory; bfloat16, which numpy lacks,
    becomes float32."""
    tensor = tensor.detach().cpu().resolve_conj().resolve_neg()
    return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()


def _walk(value: Any, path: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], Tensor]]:
    if isinstance(value, Tensor):
        yield path, value
        return
    items: Any = ()
    if isinstance(value, Mapping):  # also the ModelOutput of transformers
        items = value.items()
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        items = ((f.name, getattr(value, f.name)) for f in dataclasses.fields(value))
    elif isinstance(value, tuple | list):
        items = zip(getattr(value, "_fields", range(len(value))), value, strict=True)
    for key, inner in items:
        yield from _walk(inner, (*path, key))


def _input_name(module: nn.Module, path: tuple[Any, ...]) -> str:
    where, first, *rest = path
    if where.idx == 0:  # a positional argument: find its parameter
        parameters = list(inspect.signature(module.forward).parameters.values())
        plain = [p.name for p in parameters if p.kind <= inspect.Parameter.POSITIONAL_OR_KEYWORD]
        extra = [p.name for p in parameters if p.kind == inspect.Parameter.VAR_POSITIONAL]
        index = first.idx
        head = plain[index] if index < len(plain) else f"{extra[0]}_{index - len(plain)}"
    else:
        head = first.key
    parts = [head, *(getattr(key, "key", getattr(key, "idx", key)) for key in rest)]
    return re.sub(r"\W+", "_", "_".join(map(str, parts)))
