"""Collects a session's facts about the machine, without importing heavy libraries."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import socket

from tvmscope.core.environment import Environment
from tvmscope.machine import cpu_features, cuda_device

PACKAGES = (
    "tvmscope", "apache-tvm", "apache-tvm-ffi", "torch", "torchvision", "transformers", "onnx",
    "onnxruntime", "openvino", "numpy",
)  # fmt: skip


def collect(threads: int) -> Environment:
    """Return the current environment."""
    gpu, cap = cuda_device.find(), cpu_features.cap()
    return Environment(
        cpu=cpu_features.model_name(),
        cpu_features=tuple(sorted(cpu_features.reported())),
        cores=cpu_features.usable_cores(),
        threads=threads,
        host=socket.gethostname(),
        load=os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        gpu=gpu.name if gpu else None,
        driver=gpu.driver if gpu else None,
        isa_cap=cap.name if cap else None,
        versions={"python": platform.python_version(), **package_versions()},
    )


def package_versions() -> dict[str, str]:
    """Return the versions of the relevant packages that are installed."""
    found = {}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
