"""Asks LLVM about CPUs, and proves that code for the host runs."""

from __future__ import annotations

from typing import Any

from tvmscope.machine import cpu_features
from tvmscope.runtime import tvm_compat


def llvm_host() -> tuple[str, str]:
    """Return LLVM's name of this CPU and its triple; imports TVM, so call it in a child process.

    If the host is capped and LLVM's CPU has more features, return the CPU that represents the cap.
    """
    tvm_compat.import_tvm(torch=False)
    from tvm.target import codegen

    name, triple = str(codegen.llvm_get_system_cpu()), str(codegen.llvm_get_system_triple())
    cap = cpu_features.cap()
    if cap and any(cap.hides(feature) for feature in llvm_features(name, None) or ()):
        name = cap.arch
    return name, triple


def llvm_features(arch: str, triple: str | None) -> tuple[str, ...] | None:
    """Return the features that LLVM gives a CPU name; None if LLVM does not know it."""
    tvm_compat.import_tvm(torch=False)
    from tvm.target import Target as TvmTarget
    from tvm.target import codegen

    if not codegen.llvm_is_valid_cpu(arch, triple or codegen.llvm_get_system_triple()):
        return None
    config = {"kind": "llvm", "mcpu": arch} | ({"mtriple": triple} if triple else {})
    found = {str(name) for name in codegen.llvm_get_cpu_features(TvmTarget(config))}
    return tuple(sorted(found & cpu_features.ISA_FEATURES))


def run_probe_kernel(target: dict[str, Any]) -> float:
    """Compile and run a small vector kernel for TVM's `target`; return the error of its result.

    Called in a child process: code for another CPU dies there with SIGILL.
    """
    import numpy as np

    tvm_compat.import_tvm(torch=False)
    import tvm
    from tvm import te

    n = 4096
    x = te.placeholder((n,), "float32", name="x")
    y = te.compute((n,), lambda i: te.exp(x[i]) * x[i] + te.sqrt(te.abs(x[i])), name="y")
    module = tvm.compile(te.create_prim_func([x, y]), target=tvm.target.Target(target))
    data = np.linspace(-2, 2, n, dtype="float32")
    out = tvm.runtime.empty((n,), "float32")
    module["main"](tvm.runtime.tensor(data), out)
    return float(np.abs(out.numpy() - (np.exp(data) * data + np.sqrt(np.abs(data)))).max())
