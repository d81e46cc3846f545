"""Runs a unit's kernel on the CPU: in a process where Triton interprets instead of compiling."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from tvmscope.cuda.binding import EARLY_HELD, PARAMETERS, bind
from tvmscope.cuda.config import Config
from tvmscope.cuda.packing import pack_weight
from tvmscope.cuda.units import Unit

Arrays = dict[str, np.ndarray[Any, Any]]


def draw(unit: Unit, seed: int = 0) -> Arrays:
    """Random tensors by role in float32, holding only values that the unit's type can hold."""
    rng = np.random.default_rng(seed)
    out: Arrays = {}
    for tensor in unit.tensors:
        if tensor.role in ("output", "sum"):
            continue
        values = rng.standard_normal(tensor.shape).astype(np.float32)
        out[tensor.role] = _round(values, tensor.dtype)
    return out


def run(unit: Unit, config: Config, arrays: Arrays, times: int = 1) -> Arrays:
    """Output buffers by role, poisoned with NaN first; counters are checked to be zero again."""
    import torch

    _accept_numpy_scalars()
    binding = bind(unit, config)
    module, _, name = binding.function.partition(":")
    kernel = getattr(importlib.import_module(module), name)
    tensors: dict[str, Any] = {}
    for tensor in binding.arguments:
        if tensor.role == "scratch":  # the interpreter needs none
            continue
        dtype = getattr(torch, tensor.dtype)
        if tensor.role == "counters":
            tensors[tensor.role] = torch.zeros(tensor.shape, dtype=dtype)
        elif tensor.role in ("output", "workspace", "sum"):
            tensors[tensor.role] = torch.full(tensor.shape, float("nan"), dtype=dtype)
        else:
            values = arrays[tensor.role]
            if tensor.role == "weight":
                values = pack_weight(unit, config, values)
            tensors[tensor.role] = torch.from_numpy(values).to(dtype).contiguous()
    constants = dict(binding.constants)
    if constants.get("EARLY") == EARLY_HELD:
        constants["EARLY"] = 1
    pointers = {PARAMETERS[role]: value for role, value in tensors.items()}
    for _ in range(times):
        kernel[binding.grid](**pointers, **dict.fromkeys(binding.absent), **constants)
    if "counters" in tensors:
        assert not tensors["counters"].any(), "a counter was not reset"
    return {role: tensors[role].float().numpy() for role in ("output", "sum") if role in tensors}


def _round(values: np.ndarray[Any, Any], dtype: str) -> np.ndarray[Any, Any]:
    import torch

    rounded = torch.from_numpy(values).to(getattr(torch, dtype)).float().numpy()
    return np.ascontiguousarray(rounded)


def _accept_numpy_scalars() -> None:
    """Triton 3.6 makes loop bounds of one-element arrays by int(), which numpy 2.4 refuses."""
    from triton.runtime import interpreter

    if not hasattr(interpreter, "_tvmscope_patched"):
        plain = interpreter._patch_lang_tensor

        def patch(tensor: Any, scope: Any) -> None:
            plain(tensor, scope)
            scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

        interpreter._patch_lang_tensor = patch
        interpreter._tvmscope_patched = True
