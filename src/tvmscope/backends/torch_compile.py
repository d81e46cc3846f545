"""torch.compile at its best for inference: frozen weights on the CPU, CUDA graphs where asked."""

from __future__ import annotations

import shutil

from tvmscope.backends import _torch
from tvmscope.backends._api import Backend, LoadRequest


def load(request: LoadRequest) -> _torch.TorchRunner:
    """Compile the module, with each memory format where it can matter, and keep the faster."""
    runner = _torch.make_runner(request)
    torch = runner.torch
    import torch._inductor.config as inductor

    inductor.freezing = True
    inductor.max_autotune = request.device == "cuda"
    mode = "reduce-overhead" if request.graph else "default"
    candidates = []
    with torch.inference_mode():
        for channels_last in _formats(runner):
            module, args, kwargs = runner.prepare(channels_last)
            torch._dynamo.reset()
            compiled = torch.compile(module, mode=mode)

            def call(compiled=compiled, args=args, kwargs=kwargs):  # type: ignore[no-untyped-def]
                return compiled(*args, **kwargs)

            candidates.append((runner.median_s(call), channels_last, call))
    elapsed, channels_last, call = min(candidates, key=lambda c: c[0])
    runner.use(call)
    runner.settings |= {
        "mode": mode,
        "freezing": "True",
        "max_autotune": str(inductor.max_autotune),
        "memory_format": "channels_last" if channels_last else "contiguous",
        "threads": str(request.threads),
    }
    return runner


def _formats(runner: _torch.TorchRunner) -> tuple[bool, ...]:
    """Inductor picks layouts by itself on the CPU when weights are frozen: one compile is enough."""
    return (False, True) if runner.has_images() and runner.device == "cuda" else (False,)


def unavailable(device: str) -> str | None:
    """torch.compile also needs a C++ compiler on the CPU."""
    reason = _torch.unavailable(device)
    if reason is None and device == "cpu" and not (shutil.which("g++") or shutil.which("clang++")):
        return "torch.compile needs a C++ compiler: install g++"
    return reason


BACKENDS = (
    Backend(
        name="torch-compile",
        kinds=("cpu", "cuda"),
        formats=("torch",),
        precisions=("float32", "float16", "bfloat16"),
        graphs=True,
        load="tvmscope.backends.torch_compile:load",
        unavailable=unavailable,
        env=_torch.env,
    ),
)
