"""One call of a framework: what it takes, and how PyTorch is given TVM's tensors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Compute:
    """A part on the host."""

    call: Callable[..., Any]
    writes: int = 0
    """How many of its last arguments it writes; without any, it returns its results."""


def torch_call(program: Any) -> Callable[..., Any]:
    """Runs an exported program; its results are handed over without a copy."""
    import torch
    from torch.utils.dlpack import from_dlpack
    from tvm import runtime

    kind = torch.export.graph_signature.InputKind.USER_INPUT
    stored = {**program.state_dict, **program.constants}
    specs = program.graph_signature.input_specs
    held = [None if spec.kind is kind else stored[str(spec.target)] for spec in specs]
    places = [index for index, spec in enumerate(specs) if spec.kind is kind]
    compute = program.graph_module.forward

    def run(*tensors: Any) -> Any:
        arguments: list[Any] = list(held)
        with torch.inference_mode():
            for place, tensor in zip(places, tensors, strict=True):
                arguments[place] = from_dlpack(tensor)
            owned = {arguments[place].data_ptr() for place in places}
            results = [_own(result, owned) for result in compute(*arguments)]
        # without its deleter the memory would be freed with the result's last reference
        given = [runtime.from_dlpack(result) for result in results]
        return given[0] if len(given) == 1 else given

    return run


def _own(result: Any, owned: set[int]) -> Any:
    """Return a contiguous result in its own memory: TVM reuses that of the inputs."""
    if result.untyped_storage().data_ptr() in owned:
        return result.clone()
    return result.contiguous()
