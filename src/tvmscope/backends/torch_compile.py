"""torch.compile at its best for inference: frozen weights, the better layout, CUDA graphs."""

from __future__ import annotations

import shutil

from tvmscope.backends import torch_module
from tvmscope.backends.api import Backend, LoadRequest
from tvmscope.core.precision import BFLOAT16, FLOAT16, FLOAT32
from tvmscope.measure.remote import here
from tvmscope.messages import Text, msg


def load(request: LoadRequest) -> torch_module.TorchRunner:
    """Compile the module once, in the memory format that serves it best."""
    runner = torch_module.make_runner(request)
    torch = runner.torch
    import torch._inductor.config as inductor

    inductor.freezing = True
    mode = "reduce-overhead" if request.graph else "default"
    with torch.inference_mode():
        # On the CPU, Inductor picks layouts by itself once weights are frozen.
        channels_last = request.device == "cuda" and runner.prefers_channels_last()
        module, args, kwargs = runner.prepare(channels_last)
        compiled = torch.compile(module, mode=mode)
        compiled(*args, **kwargs)
    runner.use(lambda: compiled(*args, **kwargs))
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
        graphs=True,
        load=here(load),
        unavailable=unavailable,
        env=torch_module.env,
    ),
)
