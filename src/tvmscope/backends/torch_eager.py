"""PyTorch as most people run it: eager, in inference mode, channels-last where that wins."""

from __future__ import annotations

from typing import Any

from tvmscope.backends import _torch
from tvmscope.backends._api import Backend, LoadRequest


def load(request: LoadRequest) -> _torch.TorchRunner:
    """Load the module and keep the faster memory format."""
    runner = _torch.make_runner(request)
    torch = runner.torch
    best: tuple[float, bool] | None = None
    with torch.inference_mode():
        for channels_last in (False, True) if runner.has_images() else (False,):
            elapsed = runner.median_s(_call(runner, channels_last))
            best = min(best, (elapsed, channels_last)) if best else (elapsed, channels_last)
        assert best is not None
        call = _call(runner, best[1])
        runner.use(runner.graphed(call) if request.graph else call)
    runner.settings |= {
        "memory_format": "channels_last" if best[1] else "contiguous",
        "threads": str(request.threads),
        "cuda_graph": str(request.graph),
    }
    return runner


def _call(runner: _torch.TorchRunner, channels_last: bool) -> Any:
    module, args, kwargs = runner.prepare(channels_last)
    return lambda: module(*args, **kwargs)


BACKENDS = (
    Backend(
        name="torch",
        kinds=("cpu", "cuda"),
        formats=("torch",),
        precisions=("float32", "float16", "bfloat16"),
        graphs=True,
        load="tvmscope.backends.torch_eager:load",
        unavailable=_torch.unavailable,
        env=_torch.env,
    ),
)
