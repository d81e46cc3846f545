"""Parts that run in a framework while the model's tensors are on a GPU.

PyTorch with CUDA computes them on the same GPU, on the stream that TVM uses, and reads and writes
the same memory. A framework that runs on the CPU only (PyTorch without CUDA, ONNX Runtime) gets
copies of the inputs, and its results are copied to the GPU. Neither can happen while a CUDA graph
is captured: the compiler keeps these calls outside of graphs.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from tvmscope.runtime.framework_call import Compute, torch_call

_DEFAULT_STREAMS = (0, 1)
"""CUDA's handles of the default stream: none, and the one that is named so."""

observe: Callable[[str], AbstractContextManager[Any]] = nullcontext
"""Entered with the part's name around each computation on the host; a profiler replaces it."""


def place_of(device: Any) -> str | None:
    """PyTorch's name of the GPU; None where it cannot compute there."""
    import torch

    if device.type != "cuda" or not torch.cuda.is_available():
        return None
    place = f"cuda:{device.index}"
    try:
        torch.ones(1, device=place).add_(1).item()  # it may be built for other GPUs
    except RuntimeError:
        return None
    return place


def in_torch(program: Any, device: Any, place: str) -> Callable[..., Any] | None:
    """The program on the GPU, weights included; None where an operator of it runs on the CPU only.

    It computes on TVM's stream, so that neither waits for the other, and the memory that it frees
    is used again only behind what still reads it.
    """
    import torch

    if without_kernel(program, "CUDA"):
        return None
    compute = torch_call(moved_to(program, place))

    def run(*tensors: Any) -> Any:
        with torch.cuda.stream(_stream(torch, device, place)):
            return compute(*tensors)

    return run


def moved_to(program: Any, place: str) -> Any:
    """The program with its weights, and the devices that its operators name, on a device."""
    from torch.export.passes import move_to_device_pass

    moved = move_to_device_pass(program, place)
    for module in _graph_modules(moved):
        module.recompile()  # the pass changes nodes, and their code would still say the old device
    return moved


def _graph_modules(program: Any) -> list[Any]:
    import torch

    return [m for m in program.graph_module.modules() if isinstance(m, torch.fx.GraphModule)]


def without_kernel(program: Any, key: str) -> list[str]:
    """The program's operators that PyTorch cannot compute by this dispatch key: CPU, CUDA."""
    import torch

    has_kernel = torch._C._dispatch_has_computed_kernel_for_dispatch_key
    names = {
        node.target.name()
        for module in _graph_modules(program)
        for node in module.graph.nodes
        if isinstance(node.target, torch._ops.OpOverload)
    }
    return sorted(name for name in names if not has_kernel(name, key))


def _stream(torch: Any, device: Any, place: str) -> Any:
    """TVM's current stream, as PyTorch's."""
    import tvm_ffi

    handle = tvm_ffi.get_raw_stream(device)
    if handle in _DEFAULT_STREAMS:  # as an external stream, 0 would be one of PyTorch's own pool
        return torch.cuda.default_stream(place)
    return torch.cuda.ExternalStream(handle, device=place)


def through_host(name: str, compute: Compute, device: Any) -> Callable[..., Any]:
    """A part that computes on the host, for tensors on a device."""
    import tvm_ffi
    from tvm import runtime

    host = runtime.device("cpu", 0)

    def wait() -> None:
        device.sync(tvm_ffi.get_raw_stream(device))
        device.sync()  # copies are on the default stream

    def run(*tensors: Any) -> Any:
        wait()  # for the inputs, and for what still reads where the results go
        last = len(tensors) - compute.writes
        with observe(name):
            given = [tensor.copyto(host) for tensor in tensors[:last]]
            made = [runtime.empty(t.shape, str(t.dtype), host) for t in tensors[last:]]
            returned = compute.call(*given, *made)
            for there, value in zip(tensors[last:], made, strict=True):
                value.copyto(there)
            several = isinstance(returned, list)
            values = returned if several else [] if returned is None else [returned]
            results = [value.copyto(device) for value in values]
            wait()  # the copies read memory that is freed here
        return results if several else results[0] if results else None

    return run
