"""Digests of torch models that are equal in every process and run."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from tvmscope.core.model import TensorSpec


def state_digest(module: nn.Module) -> str:
    """Return SHA-256 over names, types, shapes and bytes of the module's weights and buffers."""
    return _tensors_digest(module.state_dict())


def program_digest(
    program: torch.export.ExportedProgram, state: str, specs: Iterable[TensorSpec]
) -> str:
    """Return SHA-256 over the weights' digest, the graph, its constants and its input tensors."""
    total = hashlib.sha256(state.encode())
    for name, graph in program.graph_module.named_modules():
        if isinstance(graph, torch.fx.GraphModule):
            # an object without its own repr prints its address
            total.update(f"{name}\n{re.sub('0x[0-9a-f]+', '', str(graph.graph))}\n".encode())
    total.update(_tensors_digest(program.constants).encode())
    total.update(repr([(s.name, s.shape, s.dtype) for s in specs]).encode())
    return total.hexdigest()


def _tensors_digest(tensors: Mapping[str, Any]) -> str:
    total = hashlib.sha256()
    for name, tensor in tensors.items():
        if isinstance(tensor, Tensor):
            flat = tensor.detach().cpu().contiguous().reshape(-1)
            total.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
            total.update(flat.view(torch.uint8).numpy().data)
    return total.hexdigest()
