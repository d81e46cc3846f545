"""PyTorch as most people run it: eager, in inference mode, channels-last if that is faster."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from tvmscope.backends import torch_module
from tvmscope.backends.api import Backend, LoadRequest
from tvmscope.backends.profilers import torch_replay
from tvmscope.backends.profilers.torch import TorchProfiler
from tvmscope.core.precision import BFLOAT16, FLOAT16, FLOAT32
from tvmscope.measure.remote import here


def load(request: LoadRequest) -> torch_module.TorchRunner:
    """Load the module and keep the faster memory format."""
    runner = torch_module.make_runner(request)
    with runner.torch.inference_mode():
        channels_last = runner.prefers_channels_last()
        call = runner.eager_call(channels_last)
        runner.use(runner.graphed(call) if request.graph else call)
    folder = Path(request.folder)
    if request.graph:  # a replayed graph runs no Python that could say which operator it is at
        runner.profiler = partial(torch_replay.of_graph, runner, folder, call)
    else:
        runner.profiler = partial(TorchProfiler, runner, folder)
    runner.settings |= {
        "memory_format": "channels_last" if channels_last else "contiguous",
        "threads": str(request.threads),
        "cuda_graph": str(request.graph),
    }
    return runner


BACKENDS = (
    Backend(
        name="torch",
        kinds=("cpu", "cuda"),
        formats=("torch",),
        precisions=(FLOAT32, FLOAT16, BFLOAT16),
        cuda_precisions=torch_module.CUDA_PRECISIONS,
        graphs=True,
        profiles=True,
        profiles_cuda=True,
        load=here(load),
        unavailable=torch_module.unavailable,
        env=torch_module.env,
    ),
)
