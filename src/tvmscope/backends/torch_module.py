"""Code that the PyTorch backends share: module placement, event timing, CUDA graphs."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from tvmscope import extras
from tvmscope.backends.api import LoadRequest, Profiler
from tvmscope.core.precision import BFLOAT16, FLOAT16, FLOAT32, TF32, Dtype
from tvmscope.messages import Text, msg

CUDA_PRECISIONS = (FLOAT32, TF32, FLOAT16, BFLOAT16)


def unavailable(device: str) -> Text | None:
    """Why PyTorch cannot run on a device, without importing it."""
    if reason := extras.missing("torch"):
        return reason
    if device == "cuda":
        from tvmscope.machine.cuda_device import find

        return None if find() else msg("no CUDA device here")
    return None


def env(threads: int) -> dict[str, str]:
    """Return the worker's environment."""
    return {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}


def _dtypes() -> dict[Dtype, Any]:
    import torch

    return {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


class TorchRunner:
    """A PyTorch callable with its inputs in place, chosen among candidate settings by time."""

    def __init__(self, request: LoadRequest) -> None:
        import torch

        from tvmscope.models.torch_module import load_module

        torch.set_num_threads(request.threads)
        # TF32 keeps 10 bits of the mantissa, so its results differ from float32. If requested,
        # it follows PyTorch's defaults: in convolutions only.
        tf32 = request.precision.math == "tf32"
        torch.backends.cudnn.allow_tf32 = tf32
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.benchmark = request.device == "cuda"
        self.torch, self.device = torch, request.device
        self.loaded = load_module(request.folder)
        self.settings: dict[str, str] = {
            "torch": torch.__version__,
            "tf32": "convolutions" if tf32 else "False",
        }
        if request.device == "cuda":
            self.settings["cudnn_benchmark"] = "True"
        self.dtype = _dtypes()[request.precision.dtype]
        self.half = request.precision.is_half
        self._call: Callable[[], Any] = lambda: None
        self._inputs: list[Any] = []
        self.profiler: Callable[[], Profiler] | None = None

    def place(self, value: Any, channels_last: bool) -> Any:
        """Return a tensor on the device, in the precision and memory format of this run."""
        torch = self.torch
        if not isinstance(value, torch.Tensor):
            return value
        value = value.to(self.device)
        if value.is_floating_point():
            value = value.to(self.dtype)
        if channels_last and value.dim() == 4:
            value = value.contiguous(memory_format=torch.channels_last)
        return value

    def prepare(self, channels_last: bool) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
        """Module and inputs for one setting."""
        module = self.loaded.module.to(self.device, self.dtype)
        form = self.torch.channels_last if channels_last else self.torch.contiguous_format
        if any(p.dim() == 4 for p in module.parameters()):
            # torch's type hints lack this argument
            module = module.to(memory_format=form)  # type: ignore[call-overload]
        args = tuple(self.place(a, channels_last) for a in self.loaded.args)
        kwargs = {k: self.place(v, channels_last) for k, v in self.loaded.kwargs.items()}
        self._inputs = [v for v in (*args, *kwargs.values()) if isinstance(v, self.torch.Tensor)]
        return module, args, kwargs

    def eager_call(self, channels_last: bool) -> Callable[[], Any]:
        """Run once in eager mode."""
        module, args, kwargs = self.prepare(channels_last)
        return lambda: module(*args, **kwargs)

    @property
    def has_images(self) -> bool:
        """Whether the memory format may matter: it has images and windows that slide over them."""
        given = (*self.loaded.args, *self.loaded.kwargs.values())
        return any(p.dim() == 4 for p in self.loaded.module.parameters()) and any(
            isinstance(v, self.torch.Tensor) and v.dim() == 4 for v in given
        )

    def prefers_channels_last(self) -> bool:
        """Whether the model runs faster with images laid out channels-last, by trying both."""
        if not any(p.dim() == 4 for p in self.loaded.module.parameters()):
            return False
        plain = self._quick_device_s(self.eager_call(False))
        return self._quick_device_s(self.eager_call(True)) < plain

    def _quick_device_s(self, call: Callable[[], Any]) -> float:
        """Time a GPU as a graph: launches from Python would hide which kernels are faster."""
        if self.device != "cuda":
            return self.quick_s(call)
        try:
            replay = self.graphed(call)
        except RuntimeError:  # the model synchronises or allocates: no graph can hold it
            self.synchronize()
            return self.quick_s(call)
        return self.quick_s(replay, n=20)

    def use(self, call: Callable[[], Any]) -> None:
        """Run `call` from now on."""
        self._call = call

    def swap(self, call: Callable[[], Any]) -> Callable[[], Any]:
        """Run `call` from now on; returns what ran before."""
        before, self._call = self._call, call
        return before

    def synchronize(self) -> None:
        """Wait for the GPU, if there is one."""
        if self.device == "cuda":
            self.torch.cuda.synchronize()

    def quick_s(self, call: Callable[[], Any], n: int = 5) -> float:
        """Measure a quick time to choose between settings: the minimum of some runs."""
        times = []
        for i in range(n + 2):
            start = time.perf_counter()
            call()
            self.synchronize()
            if i >= 2:
                times.append(time.perf_counter() - start)
        return min(times)

    def graphed(self, call: Callable[[], Any]) -> Callable[[], Any]:
        """Capture `call` into a CUDA graph; returns a replay that gives the same outputs."""
        torch = self.torch
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                call()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = call()

        def replay() -> Any:
            graph.replay()
            return result

        return replay

    def run(self) -> None:
        """Run once and wait."""
        with self.torch.inference_mode():
            self._call()
        self.synchronize()

    def outputs(self) -> dict[str, np.ndarray[Any, Any]]:
        """Run once and return all outputs."""
        with self.torch.inference_mode():
            if self.device == "cuda":
                self.run_on_others()
            result = self._call()
        self.synchronize()
        flat = self.loaded.flatten(result)
        return {name: _to_numpy(self.torch, value) for name, value in flat.items()}

    def run_on_others(self) -> None:
        """Run once on other inputs in the same memory (see `api.decoy`)."""
        kept = [value.clone() for value in self._inputs]
        for value, own in zip(self._inputs, kept, strict=True):
            other = own.flip(tuple(range(own.dim())))
            value.copy_(-other if own.is_floating_point() else other)
        self._call()
        self.synchronize()
        for value, own in zip(self._inputs, kept, strict=True):
            value.copy_(own)


class CudaTorchRunner(TorchRunner):
    """The same on a GPU, where events time the device itself."""

    def time_device(self, n: int) -> list[float]:
        """Device seconds of `n` runs, by events."""
        torch = self.torch
        times = []
        with torch.inference_mode():
            for _ in range(n):
                first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                first.record()
                self._call()
                last.record()
                last.synchronize()
                times.append(first.elapsed_time(last) / 1e3)
        return times


def make_runner(request: LoadRequest) -> TorchRunner:
    """Return a runner for the request's device."""
    return CudaTorchRunner(request) if request.device == "cuda" else TorchRunner(request)


def _to_numpy(torch: Any, value: Any) -> np.ndarray[Any, Any]:
    value = value.detach().cpu()
    return np.asarray((value.float() if value.dtype == torch.bfloat16 else value).numpy())
