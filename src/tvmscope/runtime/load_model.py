"""Runs the compiled model in this folder with TVM alone: no tvmscope, PyTorch or Triton.

    sys.path.insert(0, "artifact")
    from load_model import Model

    model = Model("artifact")
    outputs = model(x)  # numpy arrays in, numpy arrays by name out

`python load_model.py` runs the model beside it once on zeros. Loading runs machine code from this
folder: load only what you trust.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import json
import mmap
import os
import platform
import re
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

LIBRARY, WEIGHTS, META = "model.so", "weights.bin", "meta.json"
CODE, TABLE = "cubins.bin", "cubins.json"
_MAKERS = {"cublaslt": "product", "cudnn": "convolution"}
"""NVIDIA's libraries: the file with each name makes its calls, by this method."""
_TAGS = ["threadIdx.x", "blockIdx.x", "blockIdx.y", "blockIdx.z", "tirx.use_dyn_shared_memory"]
_DEPENDENT = "tirx.use_programtic_dependent_launch"  # TVM's own spelling
_CUDA = 2  # DLPack's number of the device type
_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*
_FLAGS = {
    "sse3": "pni", "bmi": "bmi1", "lzcnt": "abm", "pclmul": "pclmulqdq", "sha": "sha_ni",
    "rdrnd": "rdrand", "neon": "asimd", "fp-armv8": "fp", "crc": "crc32", "lse": "atomics",
    "rdm": "asimdrdm", "fullfp16": "asimdhp", "dotprod": "asimddp", "fp16fml": "asimdfhm",
}  # fmt: skip
"""LLVM's names of CPU features that differ from those in /proc/cpuinfo by more than signs."""
_CAUSES = (
    (
        "out of memory|out_of_memory|memoryallocation",
        "the GPU has too little free memory{free}; free some, or take a smaller batch",
    ),
    (
        "no_binary_for_gpu|no kernel image|nokernelimage",
        "the kernels are for another GPU; compile the model for this one",
    ),
    (
        "unsupported_ptx_version|unsupportedptx|insufficient.?driver|invalid_image|system_driver",
        "the NVIDIA driver is too old for these kernels; update it",
    ),
    (
        "allowed dynamic shared memory",
        "a kernel needs more shared memory than this GPU has; compile the model for this one",
    ),
    (
        "launch error|launch_failed|launchfailure|launch_out_of_resources|invalid_value"
        "|invalid_config|illegal_address|illegal memory|illegaladdress|misaligned|launch_timeout",
        "a CUDA kernel failed; its result is lost and this process cannot use the GPU any more",
    ),
)
"""The meaning of CUDA's errors for the user, by their names or texts; the first match counts."""


_PRODUCTS: dict[str, dict[int, Any]] = {}
"""Calls of NVIDIA's libraries by name and GPU: a process may load a model for several GPUs."""


class LoadError(RuntimeError):
    """The model cannot run here; the message says why and what to do."""


class Model:
    """A callable: takes numpy arrays by position or name, returns numpy arrays by output name."""

    def __init__(self, folder: Any = None, *, device: int = 0, threads: int | None = None) -> None:
        self.folder = Path(folder) if folder is not None else Path(__file__).resolve().parent
        self.meta = read_meta(self.folder)
        self.inputs = _specs(self.meta["inputs"])
        self.outputs = _specs(self.meta["outputs"])
        self.gpu = self.meta["target"]["kind"] == "cuda"
        check_files(self.folder, self.meta)
        if parts := self.meta.get("fallbacks"):
            inside = ", ".join(name for part in parts for name in part["operators"])
            names = {"onnxruntime": "ONNX Runtime", "torch": "PyTorch"}
            frameworks = " and ".join({names[part["framework"]] for part in parts})
            raise LoadError(
                f"{inside} have no kernel and run in {frameworks}, which this loader does not do;"
                " load the folder with tvmscope.load_artifact, or compile with --no-fallback"
            )
        if self.gpu:
            check_gpu(self.meta, device, holds_source(self.folder / LIBRARY))
        else:
            check_cpu(self.meta)
        tvm = import_tvm(self.meta, threads)
        from tvm.runtime.vm import VirtualMachine  # tvm.relax would need the compiler

        self._tensor = tvm.runtime.tensor
        self._device = tvm.cuda(device) if self.gpu else tvm.cpu()
        self._free = free_memory if self.gpu else None
        with _explained(self._free):
            register_cubins(tvm, self.folder, device)
            library = tvm.runtime.load_module(str(self.folder / LIBRARY))
            machine = VirtualMachine(library, self._device)
            if stored := self.meta.get("stored"):
                machine.save_function("main", "main", *_weights(tvm, stored, self.folder))
        self._main = machine["main"]

    def __call__(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        given = self._named(args, kwargs)
        with _explained(self._free):
            placed = [self._tensor(given[name], self._device) for name in self.inputs]
            result = self._main(*placed)
            self._device.sync()  # a failed kernel reports its error here at the latest
            values = [result] if hasattr(result, "numpy") else list(result)
            return {n: v.numpy() for n, v in zip(self.outputs, values, strict=True)}

    def _named(self, args: Any, kwargs: Any) -> dict[str, Any]:
        if len(args) > len(self.inputs):
            raise TypeError(f"the model takes {len(self.inputs)} inputs, got {len(args)}")
        given = dict(zip(self.inputs, args, strict=False))
        twice = given.keys() & kwargs.keys()
        given |= kwargs
        wrong = sorted(twice | (given.keys() ^ self.inputs.keys()))
        if wrong:
            raise TypeError(
                f"missing, unknown or given twice: {', '.join(wrong)};"
                f" the model takes {', '.join(self.inputs)}"
            )
        for name, (shape, dtype) in self.inputs.items():
            value = given[name] = np.asarray(given[name], order="C")
            if value.shape != shape or str(value.dtype) != dtype:
                raise TypeError(
                    f"input '{name}' must be {dtype}{list(shape)},"
                    f" got {value.dtype}{list(value.shape)}"
                )
        return given


def read_meta(folder: Path) -> dict[str, Any]:
    """Return the artifact's metadata."""
    try:
        meta: dict[str, Any] = json.loads((folder / META).read_text("utf-8"))
        meta["target"]["kind"]
    except FileNotFoundError:
        raise LoadError(f"{folder} is no compiled model: no {META}") from None
    except (ValueError, KeyError, TypeError) as e:
        raise LoadError(f"{folder / META} is damaged: {e!r}") from e
    return meta


def check_files(folder: Path, meta: dict[str, Any]) -> None:
    """Raise if the folder is incomplete."""
    wanted = {
        LIBRARY: meta["library_digest"],
        WEIGHTS: meta.get("stored_digest"),
        CODE: meta.get("generated_digest"),
    }
    for name, digest in wanted.items():
        if digest is None:
            continue
        if not (folder / name).is_file():
            raise LoadError(f"{folder} has no {name}: copy the whole folder, or compile again")
        with (folder / name).open("rb") as stream:
            if hashlib.file_digest(stream, "sha256").hexdigest() != digest:
                raise LoadError(f"{folder / name} is corrupted: copy or compile it again")
    needed = [TABLE] if meta.get("generated_digest") else []
    for name in [*needed, *(f"{library.lower()}.py" for library in meta.get("libraries") or ())]:
        if not (folder / name).is_file():
            raise LoadError(f"{folder} has no {name}: copy the whole folder, or compile again")


def check_cpu(meta: dict[str, Any]) -> None:
    """Raise if the code is for another CPU."""
    target = meta["target"]
    machine = (target.get("triple") or platform.machine()).split("-")[0]
    if machine.replace("arm64", "aarch64") != platform.machine():
        raise LoadError(f"the model is built for {machine}; this is {platform.machine()}")
    flags = _cpu_flags()
    lacking = [f for f in target.get("features", ()) if _plain(_FLAGS.get(f, f)) not in flags]
    if flags and lacking:
        raise LoadError(
            f"the model is built for {target['arch']}; this CPU lacks {', '.join(lacking)};"
            " compile it for this machine"
        )


def _cpu_flags() -> set[str]:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return set()
    pairs = (line.partition(":") for line in lines)
    return {_plain(f) for k, _, v in pairs if k.strip() in ("flags", "Features") for f in v.split()}


def _plain(flag: str) -> str:
    return re.sub(r"[._-]", "", flag)


def holds_source(library: Path) -> bool:
    """Whether TVM will compile CUDA source when it loads the library."""
    with library.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as m:
        return m.find(b"__global__") >= 0


def check_gpu(meta: dict[str, Any], index: int, source: bool) -> None:
    """Raise if the code is for another GPU, or for a newer driver."""
    built = str(meta["target"]["arch"])
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as e:
        raise LoadError(
            f"the model is built for CUDA ({built}), and there is no NVIDIA driver here: {e}"
        ) from e
    count, device, driver = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    code = cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count))
    if code or count.value <= index:
        raise LoadError(
            f"the model is built for CUDA ({built}), and there is no GPU number {index} here"
            + (f" (CUDA error {code})" if code else "")
        )
    cuda.cuDeviceGet(ctypes.byref(device), index)
    cuda.cuDriverGetVersion(ctypes.byref(driver))
    here = 10 * _attribute(cuda, _MAJOR, device) + _attribute(cuda, _MINOR, device)
    if not runs_on(built, here):
        raise LoadError(
            f"the model is built for {built}; GPU {index} is sm_{here}; compile it for that one"
        )
    _check_code(meta["versions"].get("cuda"), driver.value // 1000, source)


def _check_code(built_with: str | None, driver: int, source: bool) -> None:
    if built_with is not None:
        if int(built_with.split(".")[0]) > driver:
            raise LoadError(
                f"the model is built with CUDA {built_with}, the driver is for CUDA {driver};"
                " update the driver"
            )
    elif source and importlib.util.find_spec("cuda") is None and shutil.which("nvcc") is None:
        raise LoadError(
            "the model holds CUDA source, and no compiler is here: install the CUDA toolkit (nvcc),"
            " or pip install cuda-bindings; or compile the model on a machine with a GPU"
        )


def _attribute(cuda: Any, number: int, device: ctypes.c_int) -> int:
    value = ctypes.c_int()
    cuda.cuDeviceGetAttribute(ctypes.byref(value), number, device)
    return value.value


def runs_on(built: str, here: int) -> bool:
    """Whether machine code can run: code for sm_86 runs on 8.6 to 8.9, for sm_90a on 9.0 only."""
    code = int("".join(c for c in built if c.isdigit()) or 0)
    return here == code if built.endswith("a") else here // 10 == code // 10 and here >= code


SPIN_COUNT = "TVM_THREAD_POOL_SPIN_COUNT"
"""How often TVM's threads look for work before they sleep; read when its pool starts."""


def is_crowded(samples: int = 3) -> bool:
    """Whether other processes want all cores now: as many as there are, each time one looks.

    TVM's threads wait for work by yielding their core over and over. Where others want it they
    get it back late, for every kernel; those that sleep meanwhile get it at once.
    """
    for sample in range(samples):
        if sample:
            time.sleep(0.002)
        try:
            running = int(Path("/proc/loadavg").read_text().split()[3].split("/")[0])
        except (OSError, ValueError, IndexError):  # not Linux
            return False
        if running - 1 < (os.cpu_count() or 1):  # without this process
            return False
    return True


def import_tvm(meta: dict[str, Any], threads: int | None) -> Any:
    """Import TVM of the version that built the model; use all cores of this process."""
    if threads is not None or "TVM_NUM_THREADS" not in os.environ:  # by default it uses half
        os.environ["TVM_NUM_THREADS"] = str(threads or len(os.sched_getaffinity(0)))
    os.environ.setdefault("TVM_BIND_THREADS", "0")
    if is_crowded():
        os.environ.setdefault(SPIN_COUNT, "0")
    choose_cuda_compiler()
    built = meta["versions"].get("tvm")
    try:
        import tvm
    except ImportError as e:
        raise LoadError(f"TVM is needed: pip install apache-tvm=={built} ({e})") from e
    if tvm.__version__ != built:
        raise LoadError(f"the model was built with TVM {built}, this is TVM {tvm.__version__}")
    return tvm


def choose_cuda_compiler() -> None:
    """Let TVM use nvcc if cuda-bindings, which its NVRTC mode needs, is not installed."""
    try:
        found = importlib.util.find_spec("cuda.bindings") is not None
    except ModuleNotFoundError:  # also if a file of the user's is called cuda.py
        found = False
    if not found and shutil.which("nvcc"):
        os.environ.setdefault("TVM_CUDA_COMPILE_MODE", "nvcc")


def register_cubins(tvm: Any, folder: Path, device: int = 0) -> None:
    """Register a packed function with TVM for each generated kernel and each call of NVIDIA's
    libraries that replaces one; the model's library calls them by name."""
    if not (folder / TABLE).is_file():
        return
    import tvm_ffi

    table = json.loads((folder / TABLE).read_text("utf-8"))
    register_calls([entry for entry in table if entry.get("library")], folder, device)
    generated = [entry for entry in table if not entry.get("library")]
    if not generated:
        return
    code = (folder / CODE).read_bytes()
    describe = tvm_ffi.get_global_func("runtime.LoadMetaDataFromJSON")
    create = tvm_ffi.get_global_func("ffi.Module.create.cuda", allow_missing=True)
    if create is None:
        raise LoadError("this TVM cannot load CUDA kernels: it found no CUDA driver")
    for kernel in generated:
        pointers, hidden = kernel["pointers"], kernel["hidden_pointers"]
        info = {
            "name": "",
            "arg_types": ["handle"] * pointers + ["int64"] * hidden,
            "launch_param_tags": [_DEPENDENT, *_TAGS] if kernel.get("dependent") else _TAGS,
        }
        meta = {"tvm_version": str(tvm.__version__), "func_info": {kernel["symbol"]: info}}
        part = code[kernel["offset"] : kernel["offset"] + kernel["size"]]
        module = create(part, "cubin", describe(json.dumps(meta)), {})
        function = module.get_function(kernel["symbol"])
        tvm_ffi.register_global_func(kernel["name"], function, override=True)


def register_calls(entries: list[dict[str, Any]], folder: Path, device: int) -> None:
    """Register functions that call NVIDIA's libraries on TVM's current stream, even while it is
    captured."""
    if not entries:
        return
    import tvm_ffi

    current = ctypes.CDLL(tvm_ffi.libinfo.find_libtvm_ffi()).TVMFFIEnvGetStream
    current.restype, current.argtypes = ctypes.c_void_p, (ctypes.c_int32, ctypes.c_int32)
    use_device(device)
    made: dict[str, Any] = {}
    for name in sorted({entry["library"]["library"] for entry in entries}):
        calls = _calls(folder / f"{name}.py")
        try:
            make = getattr(calls.Library(), _MAKERS[name])
            mine = (entry for entry in entries if entry["library"]["library"] == name)
            made |= {entry["name"]: make(entry["library"]) for entry in mine}
        except calls.LibraryError as e:
            raise LoadError(str(e)) from e

    driver = ctypes.CDLL("libcuda.so.1")

    def packed(products: dict[int, Any]) -> Any:
        def call(*pointers: Any) -> None:
            here = current_device(driver)
            products[here].launch([p.value for p in pointers], current(_CUDA, here))

        return call

    for name, product in made.items():
        _PRODUCTS.setdefault(name, {})[device] = product
        tvm_ffi.register_global_func(name, packed(_PRODUCTS[name]), override=True)


def _calls(file: Path) -> Any:
    """Import the file that makes a library's calls."""
    spec = importlib.util.spec_from_file_location(f"tvmscope_{file.stem}", file)
    if spec is None or spec.loader is None:
        raise LoadError(f"{file} cannot be imported: compile the model again")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def current_device(driver: Any) -> int:
    """Return this thread's current GPU, which TVM has set."""
    device = ctypes.c_int()
    if code := driver.cuCtxGetDevice(ctypes.byref(device)):
        raise LoadError(f"no GPU is in use (CUDA error {code})")
    return device.value


def use_device(index: int) -> None:
    """Make the GPU's primary context, which TVM also uses, current in this thread."""
    cuda = ctypes.CDLL("libcuda.so.1")
    device, context = ctypes.c_int(), ctypes.c_void_p()
    code = (
        cuda.cuInit(0)
        or cuda.cuDeviceGet(ctypes.byref(device), index)
        or cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
        or cuda.cuCtxSetCurrent(context)
    )
    if code:
        raise LoadError(f"GPU {index} cannot be used (CUDA error {code})")


def _weights(tvm: Any, stored: list[dict[str, Any]], folder: Path) -> list[Any]:
    """Read all constants into one aligned block of memory: a mapped file gets no huge pages."""
    size = (folder / WEIGHTS).stat().st_size
    memory = np.empty(size + 64, np.uint8)
    whole = memory[-memory.ctypes.data % 64 :][:size]
    with (folder / WEIGHTS).open("rb") as stream:
        stream.readinto(whole.data)
    found = []
    for entry in stored:
        dtype, shape = np.dtype(entry["dtype"]), tuple(entry["shape"])
        end = entry["offset"] + dtype.itemsize * int(np.prod(shape, dtype=np.int64))
        found.append(
            tvm.runtime.from_dlpack(whole[entry["offset"] : end].view(dtype).reshape(shape))
        )
    return found


class _explained:  # noqa: N801 - used as a `with` block
    """Turns TVM's and CUDA's errors into messages for the user."""

    def __init__(self, free: Any) -> None:
        self.free = free

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if error is None or isinstance(error, LoadError) or not isinstance(error, Exception):
            return
        raise LoadError(explain(error, self.free)) from error


def explain(error: Exception, free: Any = None) -> str:
    """Explain an error of TVM or CUDA, with its own last line."""
    return cause(error, free) or _essence(error)


def cause(error: Exception, free: Any = None) -> str | None:
    """Return what an error of CUDA means, with its own line; None for any other error."""
    for pattern, meaning in _CAUSES:
        if re.search(pattern, str(error), re.IGNORECASE):
            return f"{meaning.format(free=free() if free else '')} ({_essence(error)})"
    return None


def _essence(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return next((x for x in lines if "CUDA" in x), lines[-1] if lines else type(error).__name__)


def free_memory() -> str:
    """Return ` (1.2 of 80.0 GiB are free)` from the driver; nothing if it does not say."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return ""
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    if cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)):
        return ""
    return f" ({free.value / 2**30:.1f} of {total.value / 2**30:.1f} GiB are free)"


def _specs(entries: list[dict[str, Any]]) -> dict[str, tuple[tuple[int, ...], str]]:
    return {e["name"]: (tuple(e["shape"]), e["dtype"]) for e in entries}


def main() -> int:
    """Run once on zeros as a test."""
    try:
        model = Model(sys.argv[1] if len(sys.argv) > 1 else None)
        zeros = {name: np.zeros(*spec) for name, spec in model.inputs.items()}
        model(**zeros)
        start = time.perf_counter()
        outputs = model(**zeros)
        seconds = time.perf_counter() - start
    except LoadError as e:
        print(f"error: {e}", file=sys.stderr)
        return 1
    for name, value in outputs.items():
        print(f"{name}: {value.dtype}{list(value.shape)}")
    print(f"{seconds * 1e3:.2f} ms a run, with copies")
    return 0


if __name__ == "__main__":
    sys.exit(main())
