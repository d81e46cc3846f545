"""torch.compile at its best for inference: frozen weights, the better layout, CUDA graphs.

Two rows: `torch-compile` in mode `default`, with a CUDA graph in `reduce-overhead`; and on a GPU
`torch-compile-max-autotune`, which times Triton's kernels against the libraries' before it records
a graph of the fastest. That takes minutes for a large model.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tvmscope.backends import torch_module
from tvmscope.backends.api import Backend, LoadRequest
from tvmscope.backends.profilers import torch_replay
from tvmscope.core.precision import BFLOAT16, FLOAT16, FLOAT32
from tvmscope.measure.remote import here
from tvmscope.messages import Text, msg
from tvmscope.storage.files import write_text_atomic

Call = Callable[[], Any]
_CHANNELS_LAST, _CONTIGUOUS = "channels_last", "contiguous"
_AFFORDABLE_S = 60.0
"""A model whose compilation takes longer is not compiled for another memory format."""
_RUNS = 20


def load(request: LoadRequest) -> torch_module.TorchRunner:
    """Compile in the mode that most people use."""
    return _compiled(request, "reduce-overhead" if request.graph else "default")


def load_max_autotune(request: LoadRequest) -> torch_module.TorchRunner:
    """Compile with everything that Inductor can try."""
    return _compiled(request, "max-autotune")


def _compiled(request: LoadRequest, mode: str) -> torch_module.TorchRunner:
    """Compile the module in the memory format that serves it best."""
    runner = torch_module.make_runner(request)
    torch = runner.torch
    import torch._inductor.config as inductor

    inductor.freezing = True
    with torch.inference_mode():
        # On the CPU, Inductor picks layouts by itself once weights are frozen.
        channels_last, call = False, None
        if request.device == "cuda" and runner.has_images:
            channels_last, call = _format(runner, mode, Path(request.folder), request)
        runner.use(call or _compile(runner, mode, channels_last))
    if request.device == "cuda":
        runner.profiler = partial(torch_replay.by_order, torch, runner.run, Path(request.folder))
    runner.settings |= {
        "mode": mode,
        "freezing": "True",
        "memory_format": _CHANNELS_LAST if channels_last else _CONTIGUOUS,
        "threads": str(request.threads),
    }
    return runner


def _format(
    runner: torch_module.TorchRunner, mode: str, folder: Path, request: LoadRequest
) -> tuple[bool, Call | None]:
    """Return whether channels-last is faster, and the code if that has been compiled last.

    A mode that compiles for minutes takes the format of the mode that records a graph as well. The
    prepared folder keeps the answer for the other workers of the job.
    """
    tried = "reduce-overhead" if mode == "max-autotune" else mode
    known = folder / f"memory-format-{tried}-{request.precision.label or 'fp32'}.txt"
    if known.is_file():
        return known.read_text(encoding="utf-8") == _CHANNELS_LAST, None
    channels_last, call = fastest(runner, tried)
    write_text_atomic(known, _CHANNELS_LAST if channels_last else _CONTIGUOUS)
    if tried == mode:
        return channels_last, call
    runner.torch._dynamo.reset()
    return channels_last, None


def fastest(runner: torch_module.TorchRunner, mode: str) -> tuple[bool, Call]:
    """Compile for both memory formats and keep the faster code; only for the one that is faster in
    eager mode if a compilation takes long."""
    first = runner.prefers_channels_last()
    start = time.perf_counter()
    call = _compile(runner, mode, first)
    if time.perf_counter() - start > _AFFORDABLE_S:
        return first, call
    first_s = runner.quick_s(call, _RUNS)
    del call  # its weights and its graph leave the GPU before the others come
    runner.torch._dynamo.reset()
    with contextlib.suppress(RuntimeError):  # the compiler's errors, and those of the GPU's memory
        call = _compile(runner, mode, not first)
        if runner.quick_s(call, _RUNS) < first_s:
            return not first, call
        del call
    runner.torch._dynamo.reset()
    return first, _compile(runner, mode, first)  # Inductor's cache has its kernels


def _compile(runner: torch_module.TorchRunner, mode: str, channels_last: bool) -> Call:
    module, args, kwargs = runner.prepare(channels_last)
    compiled = runner.torch.compile(module, mode=mode)
    for _ in range(3):  # the first compiles, the next ones record the graph
        compiled(*args, **kwargs)
    return lambda: compiled(*args, **kwargs)


def unavailable(device: str) -> Text | None:
    """torch.compile also needs a C++ compiler on the CPU."""
    reason = torch_module.unavailable(device)
    if reason is None and device == "cpu" and not (shutil.which("g++") or shutil.which("clang++")):
        return msg("torch.compile needs a C++ compiler: install g++")
    return reason


BACKENDS = (
    Backend(
        name="torch-compile",
        kinds=("cpu", "cuda"),
        formats=("torch",),
        precisions=(FLOAT32, FLOAT16, BFLOAT16),
        cuda_precisions=torch_module.CUDA_PRECISIONS,
        graphs=True,
        profiles_cuda=True,
        load=here(load),
        unavailable=unavailable,
        env=torch_module.env,
    ),
    Backend(
        name="torch-compile-max-autotune",
        kinds=("cuda",),
        formats=("torch",),
        precisions=torch_module.CUDA_PRECISIONS,
        graphs=True,
        only_graphs=True,
        profiles_cuda=True,
        load=here(load_max_autotune),
        unavailable=unavailable,
        env=torch_module.env,
    ),
)
