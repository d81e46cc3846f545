"""Reports the facts about the installed TVM; runs in a child process, because TVM may crash."""

from __future__ import annotations

from typing import Any

from tvmscope.runtime import tvm_compat


def tvm_facts() -> dict[str, Any]:
    """Return TVM's version and folder, its default number of threads, its CUDA support, and whether
    its JSON writer works."""
    source = tvm_compat.prefer_source_build()
    tvm_compat.import_tvm(torch=False)
    import tvm

    facts = {
        "version": str(tvm.__version__),
        "file": str(tvm.__file__),
        "source_build": None if source is None else str(source),
        "threads": int(tvm.get_global_func("runtime.NumThreads")()),
        "llvm": int(tvm.target.codegen.llvm_version_major()),
        "llvm_cpu": str(tvm.target.codegen.llvm_get_system_cpu()),
        "cuda_code": tvm.get_global_func("target.build.cuda", allow_missing=True) is not None,
        "cuda_runtime": tvm.get_global_func("device_api.cuda", allow_missing=True) is not None,
        # a property that TVM adds to the class of another package
        "cuda_device": bool(tvm.cuda(0).exist),  # type: ignore[attr-defined]
    }
    # With an incompatible tvm-ffi the process dies here (and tuning would, too).
    tvm.ir.save_json(tvm.tirx.IntImm("int32", 1))
    return facts
