"""Measures a GPU's roofs: multiply-adds of each kind of unit, bytes of its cache and memory.

A small CUDA library, built by nvcc for this GPU, does nothing but the work in question. Newer
tensor cores are reached in full only through vendor libraries: where PyTorch is installed, its
matrix product counts too if it is faster.
"""

from __future__ import annotations

import ctypes
import importlib.util
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from importlib import resources
from pathlib import Path
from tempfile import TemporaryDirectory

from tvmscope.core.profile import Roof
from tvmscope.core.target import Target
from tvmscope.errors import BuildError, RunError
from tvmscope.machine.cuda_device import find
from tvmscope.messages import Text, msg

_MATMUL_SIDE = 8192
_REPEATS = 9
_NEWER_TYPES = 80
"""The first architecture whose tensor cores multiply bfloat16 and TF32."""


def measure(target: Target) -> tuple[Roof, ...]:
    """Return the roofs of the GPU that a target names."""
    with TemporaryDirectory(prefix="tvmscope-") as folder:
        library = _build(target, Path(folder))
        return tuple(_measure(library))


def _measure(library: ctypes.CDLL) -> Iterator[Roof]:
    yield _flops("float32", _rate(library.fma_float32), msg("chains of multiply-adds"))
    yield from _tensor_cores(library)
    device = find()
    cache = device.attrs.get("l2_cache_size_bytes", 0) if device else 0
    sizes = {"L2": cache // 4, "DRAM": 2 << 30}
    for level, size in sizes.items():
        if size:
            passes = max(1, (2 << 30) // size)
            read = _rate(library.read_bytes, ctypes.c_longlong(size), ctypes.c_int(passes))
            yield Roof(
                dtype="float32",
                threads=1,
                flops_per_s=None,
                bytes_per_s=read,
                how=msg("{level}: reading {size} MiB", level=level, size=size >> 20),
                device="cuda",
                level=level,
                size_bytes=size,
            )


def _tensor_cores(library: ctypes.CDLL) -> Iterator[Roof]:
    for kind in ("float16", "bfloat16", "tf32"):
        if not hasattr(library, f"mma_{kind}"):  # only newer tensor cores have it
            continue
        rate = _rate(getattr(library, f"mma_{kind}"))
        how = msg("chains of tensor-core products (WMMA)")
        product = _torch_product(kind)
        if product is not None and product > rate:
            rate = product
            how = msg("PyTorch's product of {side}x{side} matrices", side=_MATMUL_SIDE)
        roof = _flops(kind, rate, how)
        yield replace(roof, dtype="float32", products="tf32") if kind == "tf32" else roof


def _flops(dtype: str, rate: float, how: Text) -> Roof:
    return Roof(dtype=dtype, threads=1, flops_per_s=rate, bytes_per_s=None, how=how, device="cuda")


def _build(target: Target, folder: Path) -> ctypes.CDLL:
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        raise BuildError(msg("the roofs of a GPU need nvcc; install the CUDA toolkit"))
    source, library = folder / "roofs.cu", folder / "roofs.so"
    source.write_text(resources.files("tvmscope.profiling").joinpath("roofs.cu").read_text())
    command = [nvcc, "-O3", f"-arch={target.arch}", "-shared", "-Xcompiler", "-fPIC"]
    if int("".join(re.findall(r"\d+", target.arch))) >= _NEWER_TYPES:
        command.append("-DNEWER_TYPES")
    command += ["-o", str(library), str(source)]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    if built.returncode:
        raise BuildError(
            msg("nvcc could not build the roof kernels: {said}", said=built.stderr[-200:])
        )
    return ctypes.CDLL(str(library))


def _rate(function: ctypes._NamedFuncPointer, *args: ctypes._SimpleCData[int]) -> float:
    function.restype = ctypes.c_double
    found = float(function(*args))
    if found <= 0:
        raise RunError(msg("the GPU's roof was not measured: CUDA error {code:.0f}", code=-found))
    return found


def _torch_product(kind: str) -> float | None:
    """Return the rate of a large product; None without PyTorch for this GPU."""
    if importlib.util.find_spec("torch") is None:
        return None
    import torch

    if not torch.cuda.is_available():
        return None
    dtypes = {"float16": torch.float16, "bfloat16": torch.bfloat16, "tf32": torch.float32}
    a = torch.randn(_MATMUL_SIDE, _MATMUL_SIDE, device="cuda", dtype=dtypes[kind])
    allowed, best = torch.backends.cuda.matmul.allow_tf32, float("inf")
    torch.backends.cuda.matmul.allow_tf32 = kind == "tf32"
    try:
        for _ in range(_REPEATS + 1):
            torch.cuda.synchronize()
            start = time.perf_counter()
            torch.matmul(a, a)
            torch.cuda.synchronize()
            best = min(best, time.perf_counter() - start)
    finally:
        torch.backends.cuda.matmul.allow_tf32 = allowed
    return 2.0 * _MATMUL_SIDE**3 / best
