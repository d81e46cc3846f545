"""torch.compile at its best for inference: frozen weights, the better layout, CUDA graphs.

Two rows: `torch-compile` in mode `default`, with a CUDA graph in `reduce-overhead`; and on a GPU
`torch-compile-max-autotune`, which times Triton's kernels against the libraries' before it records
a graph of the fastest. That takes minutes for a large model.
"""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

from tvmscope.backends import torch_module
from tvmscope.backends.api import Backend, LoadRequest
from tvmscope.backends.profilers import torch_replay
from tvmscope.core.precision import BFLOAT16, FLOAT16, FLOAT32
from tvmscope.measure.remote import here
from tvmscope.messages import Text, msg


def load(request: LoadRequest) -> torch_module.TorchRunner:
    """Compile in the mode that most people use."""
    return _compiled(request, "reduce-overhead" if request.graph else "default")


def load_max_autotune(request: LoadRequest) -> torch_module.TorchRunner:
    """Compile with everything that Inductor can try."""
    return _compiled(request, "max-autotune")


def _compiled(request: LoadRequest, mode: str) -> torch_module.TorchRunner:
    """Compile the module once, in the memory format that serves it best."""
    runner = torch_module.make_runner(request)
    torch = runner.torch
    import torch._inductor.config as inductor

    inductor.freezing = True
    with torch.inference_mode():
        # On the CPU, Inductor picks layouts by itself once weights are frozen.
        channels_last = request.device == "cuda" and runner.prefers_channels_last()
        module, args, kwargs = runner.prepare(channels_last)
        compiled = torch.compile(module, mode=mode)
        for _ in range(3):  # the first compiles, the next ones record the graph
            compiled(*args, **kwargs)
    runner.use(lambda: compiled(*args, **kwargs))
    if request.device == "cuda":
        runner.profiler = partial(torch_replay.by_order, torch, runner.run, Path(request.folder))
    runner.settings |= {
        "mode": mode,
        "freezing": "True",
        "memory_format": "channels_last" if channels_last else "contiguous",
        "threads": str(request.threads),
    }
    return runner


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
