"""The one module that changes how TVM is imported; each change says which problem it avoids."""

from __future__ import annotations

import inspect
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

from tvmscope import extras

TVM_PIN = "0.27.0.post1"
FFI_PIN = "0.1.14.post1"


def prefer_source_build() -> Path | None:
    """Prefer a TVM built from source (TVM_HOME) to the wheel; return its folder if there is one.

    TVM itself reads TVM_LIBRARY_PATH to find its libraries, so only the Python path is set here.
    """
    home = os.environ.get("TVM_HOME")
    if not home or not (Path(home) / "python" / "tvm").is_dir():
        return None
    for folder in (Path(home) / "3rdparty" / "tvm-ffi" / "python", Path(home) / "python"):
        if folder.is_dir() and str(folder) not in sys.path:
            sys.path.insert(0, str(folder))
    return Path(home)


def require(*modules: str, why: str) -> None:
    """Raise `BackendUnavailable` if a module is missing; a source build's TVM counts as installed.

    It imports nothing. `why` names the feature that needs them, for the message.
    """
    prefer_source_build()
    extras.require(*modules, why=why)


def installed_version() -> str:
    """Return TVM's version without importing it; for a source build, that of its Python part."""
    source = prefer_source_build()
    if source is None:
        return metadata.version("apache-tvm")
    for name in ("_version.py", "libinfo.py"):  # the first is written by the build
        file = source / "python" / "tvm" / name
        text = file.read_text() if file.exists() else ""
        if found := re.search(r"^\s*(?:__)?version(?:__)? *= *[\"'](.+?)[\"']", text, re.MULTILINE):
            return found[1]
    return f"source {source}"


def import_tvm(*, torch: bool) -> Any:
    """Import TVM, without torch unless requested.

    `import tvm` imports torch if it is installed: two seconds and 200 MB that a process which only
    runs artifacts must not pay, and torch's thread pool must not compete with TVM's.
    """
    require("tvm", why="this")
    with nullcontext() if torch else extras.hidden("torch"):
        import tvm
    return tvm


def import_without_torch() -> None:
    """Import TVM for later imports in this process, without torch."""
    import_tvm(torch=False)


def set_thread_count(tvm: Any, threads: int) -> None:
    """Give TVM's pool `threads` workers; by default it uses half of the x86 cores.

    The pool reads TVM_NUM_THREADS once, when it starts; an already running pool can be narrowed
    but not widened, which the caller learns from `runtime.NumThreads`.
    """
    os.environ["TVM_NUM_THREADS"] = str(threads)
    # By default the pool binds its threads to cores, but not the calling thread. If another process
    # is busy, both end up on one core: 300 ms instead of 37 on two cores.
    os.environ.setdefault("TVM_BIND_THREADS", "0")
    tvm.get_global_func("runtime.config_threadpool")(1, threads)


def remember_cuda_binaries(tvm: Any) -> None:
    """Compile each CUDA source once per process.

    Variants of a model that differ in the host's part only (CUDA graphs) generate the same
    kernels, and nvcc is most of a CUDA build.
    """
    compile_cuda = tvm.get_global_func("tvm_callback_cuda_compile")
    if getattr(remember_cuda_binaries, "done", False):
        return
    binaries: dict[tuple[str, str], Any] = {}

    def compile_once(code: str) -> Any:
        key = (str(tvm.target.Target.current(allow_none=True)), str(code))
        if key not in binaries:
            binaries[key] = compile_cuda(code)
        return binaries[key]

    tvm.register_global_func("tvm_callback_cuda_compile", compile_once, override=True)
    # a function's own attribute, which mypy does not know
    remember_cuda_binaries.done = True  # type: ignore[attr-defined]


def import_tensor_intrinsics() -> None:
    """Import TVM's tensor-core intrinsics in 3 s instead of 36; DLight and MetaSchedule need them.

    Each of the module's 248 `prim_func`s calls `inspect.stack()`, which looks up the source of
    every frame and for that walks every loaded module. The parser only needs the frames.
    """
    with light_inspect():
        import tvm.s_tir.tensor_intrin  # noqa: F401 - imported for what it registers


@contextmanager
def light_inspect() -> Iterator[None]:
    """Let TVMScript functions be parsed without a search through every loaded module."""
    stack, getmodule = inspect.stack, inspect.getmodule

    def light_stack(context: int = 1) -> list[inspect.FrameInfo]:
        frame, frames = inspect.currentframe(), []
        while frame := frame.f_back if frame else None:
            code = frame.f_code
            frames.append(
                inspect.FrameInfo(frame, code.co_filename, frame.f_lineno, code.co_name, None, None)
            )
        return frames

    def light_getmodule(object: object, _filename: str | None = None) -> ModuleType | None:  # noqa: A002
        return sys.modules.get(getattr(object, "__module__", None) or "")

    inspect.stack, inspect.getmodule = light_stack, light_getmodule
    try:
        yield
    finally:
        inspect.stack, inspect.getmodule = stack, getmodule


def survive_crashed_sessions() -> None:
    """Let an RPC server outlive a client whose kernel crashed.

    TVM runs each session in a child process, and if that is killed by a signal, TVM ends the thread
    that listens for the next: one bad kernel would remove the device from the farm.
    """
    from tvm.rpc import server

    serving = server._serving

    def serve(sock: Any, addr: Any, opts: Any, load_library: Any) -> None:
        folder = os.getcwd()
        try:
            serving(sock, addr, opts, load_library)
        except RuntimeError as e:
            server.logger.warning("session of %s failed: %s", addr, e)
            os.chdir(folder)
            sock.close()

    server._serving = serve
