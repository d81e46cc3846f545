"""The one place that bends the way TVM is imported; each bend says which trap it avoids."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

TVM_PIN = "0.27.0.post1"
FFI_PIN = "0.1.14.post1"


def prefer_source_build() -> Path | None:
    """Let a TVM built from source (TVM_HOME) win over the wheel; return its folder if there is one.

    TVM itself reads TVM_LIBRARY_PATH to find its libraries, so only the Python path is set here.
    """
    home = os.environ.get("TVM_HOME")
    if not home or not (Path(home) / "python" / "tvm").is_dir():
        return None
    for folder in (Path(home) / "3rdparty" / "tvm-ffi" / "python", Path(home) / "python"):
        if folder.is_dir() and str(folder) not in sys.path:
            sys.path.insert(0, str(folder))
    return Path(home)


def import_tvm(*, torch: bool) -> Any:
    """Import TVM, with torch kept out unless asked for.

    `import tvm` pulls torch in where it is installed: two seconds and 200 MB that a process which
    only runs artifacts must not pay, and whose thread pool must not compete with TVM's.
    """
    prefer_source_build()
    if not torch and "torch" not in sys.modules:
        sys.modules["torch"] = None  # type: ignore[assignment]  # makes `import torch` fail
        try:
            import tvm
        finally:
            del sys.modules["torch"]
        return tvm
    import tvm

    return tvm


def set_thread_count(tvm: Any, threads: int) -> None:
    """Give TVM's pool `threads` workers; by itself it takes half of the x86 cores.

    The pool reads TVM_NUM_THREADS once, when it starts; an already running pool can be narrowed
    but not widened, which the caller learns from `runtime.NumThreads`.
    """
    os.environ["TVM_NUM_THREADS"] = str(threads)
    tvm.get_global_func("runtime.config_threadpool")(1, threads)
