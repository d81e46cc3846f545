"""Compiled artifacts on TVM's virtual machine: the wheel's own pipeline, and ours."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from tvmscope import extras
from tvmscope.backends.api import Backend, LoadRequest, Profiler, decoy, read_inputs
from tvmscope.core.precision import BFLOAT16, FLOAT16, FLOAT32, TF32
from tvmscope.core.row import Family
from tvmscope.core.tuning import TUNED_KERNELS, origins
from tvmscope.errors import RunError
from tvmscope.measure.remote import here
from tvmscope.messages import Text, msg
from tvmscope.plugins import described
from tvmscope.runtime.fallback import SLEEP_SOON
from tvmscope.runtime.load_model import SPIN_COUNT

_DECOY_RUNS = 3


class _Runner:
    def __init__(self, request: LoadRequest) -> None:
        from tvmscope.runtime.artifact import read_kernels
        from tvmscope.runtime.loaded_artifact import load_callable

        if request.artifact is None:
            raise RunError(msg("the TVM backends run artifacts, and none was given"))
        self.loaded = load_callable(Path(request.artifact), threads=request.threads)
        artifact = self.loaded.artifact
        self.inputs = self.loaded.place(read_inputs(Path(request.folder)))
        self.settings = {
            "tvm": artifact.versions.get("tvm", "?"),
            "pipeline": artifact.pipeline,
            "target": artifact.target.label,
            "exec_mode": artifact.exec_mode,
            "threads": str(request.threads),
            "cuda_graph": str(artifact.graph),
        }
        if (count := os.environ.get(SPIN_COUNT)) is not None:
            self.settings["spin_count"] = count
        if artifact.disabled_passes:
            self.settings["disabled_passes"] = ",".join(artifact.disabled_passes)
        if self.loaded.ways:
            self.settings["fallback"] = ", ".join(sorted(set(self.loaded.ways.values())))
        if artifact.plugins:
            self.settings["plugins"] = ", ".join(described(plugin) for plugin in artifact.plugins)
        self.settings |= {name: str(value) for name, value in artifact.overrides.items()}
        if tuned := origins(k.tuned for k in read_kernels(artifact.path) if k.tuned):
            self.settings[TUNED_KERNELS] = tuned

    def run(self) -> None:
        self.loaded.run(self.inputs)
        if self.loaded.artifact.target.kind == "cuda":
            self.loaded.wait()

    def outputs(self) -> dict[str, np.ndarray[Any, Any]]:
        return self.loaded.name_outputs(self.loaded.run(self.inputs))

    def profiler(self) -> Profiler:
        from tvmscope.backends.profilers.tvm import VmProfiler

        return VmProfiler(self.loaded, self.inputs)


class _CudaRunner(_Runner):
    def __init__(self, request: LoadRequest) -> None:
        super().__init__(request)
        given = read_inputs(Path(request.folder))
        self.decoys = self.loaded.place({name: decoy(value) for name, value in given.items()})

    def outputs(self) -> dict[str, np.ndarray[Any, Any]]:
        """Return the outputs after runs on other inputs (see `decoy`), each of which leaves NaN in
        its memory; the second records a CUDA graph."""
        for _ in range(_DECOY_RUNS):
            self.loaded.run_and_spoil(self.decoys)
        return super().outputs()

    def profiler(self) -> Profiler:
        """Use the device's records if PyTorch can read them; else CUDA events."""
        from tvmscope.backends.profilers import cupti
        from tvmscope.backends.profilers.tvm_device import DeviceProfiler

        if extras.missing("torch") is None:
            import torch

            if cupti.is_readable(torch, self.run):
                return DeviceProfiler(torch, self.run, self.loaded)
        return super().profiler()

    def time_device(self, n: int) -> list[float]:
        """Device seconds of `n` runs; TVM's evaluator records CUDA events."""
        evaluate = self.loaded.machine.time_evaluator(
            "main", self.loaded.device, number=1, repeat=n
        )
        with self.loaded.explained():
            return [float(s) for s in evaluate(*self.inputs).results]


def load(request: LoadRequest) -> _Runner:
    """Load the artifact that the request names."""
    return _CudaRunner(request) if request.device == "cuda" else _Runner(request)


def unavailable(device: str) -> Text | None:
    """Needs the wheel; on CUDA a device."""
    from tvmscope.machine import cuda_device
    from tvmscope.runtime import tvm_compat

    tvm_compat.prefer_source_build()
    if reason := extras.missing("tvm"):
        return reason
    if device == "cuda" and cuda_device.find() is None:
        return msg("no CUDA device here")
    return None


def env(threads: int) -> dict[str, str]:
    """Set the size of TVM's thread pool, which reads it once from the environment; let the threads
    of operators that run in PyTorch sleep soon."""
    counts = {"TVM_NUM_THREADS": str(threads), "OMP_NUM_THREADS": str(threads)}
    return counts | SLEEP_SOON


_GENERATED = (FLOAT32, TF32, FLOAT16, BFLOAT16)
"""What generated kernels compute in."""
_ROWS: tuple[tuple[str, Family, str, bool], ...] = (
    ("tvmscope", "ours", "tvmscope", False),
    ("tvmscope-tuned", "ours", "tvmscope", True),
    ("tvm", "tvm", "tvm", False),
    ("tvm-tuned", "tvm", "tvm-tuned", False),
)
"""Name, family, pipeline, and whether tuning records are used."""

BACKENDS = tuple(
    Backend(
        name=name,
        family=family,
        kinds=("cpu", "cuda"),
        formats=("torch", "onnx"),
        precisions=(FLOAT32, FLOAT16),
        # TVM's own kernels multiply float32 without TF32
        cuda_precisions=(FLOAT32, FLOAT16) if family == "tvm" else _GENERATED,
        graphs=True,
        profiles=True,
        profiles_cuda=True,
        profiles_graphs=True,
        compiles=pipeline,
        tuned=tuned,
        searches=pipeline == "tvm-tuned",
        load=here(load),
        unavailable=unavailable,
        env=env,
    )
    for name, family, pipeline, tuned in _ROWS
)
