"""Launch every template's kernels at odd shapes through the driver alone, against numpy.

python scripts/cuda_odd.py prepare FOLDER [--count 12] [--arch sm_90]
    draws units, compiles their kernels into FOLDER; needs Triton, no GPU
python scripts/cuda_odd.py run FOLDER [-o OUT] [--budget-s 120]
    checks each kernel; needs a GPU, and neither torch, Triton nor TVM: what compute-sanitizer
    should see is our kernels alone
python scripts/cuda_odd.py calls [-o OUT] [--budget-s 120] [--only cudnn] [--each 3]
    checks calls of NVIDIA's libraries in the same way; needs a GPU and the libraries, which may be
    torch's, and neither torch, Triton nor TVM

Each tensor has an allocation of its own and exact size. Outputs and workspaces are poisoned with
NaN first, what a view leaves out must stay so, counters must be zero again, and two more runs must
give the same bits, the last one of a call in a CUDA graph. Exit code 3 if the budget left no time
for some kernels and the others are right.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))
sys.path.insert(0, str(ROOT / "tests" / "cuda"))

from tvmscope.cuda import driver  # noqa: E402
from tvmscope.cuda.binding import bind  # noqa: E402
from tvmscope.cuda.candidates import read_candidates, write_candidates  # noqa: E402
from tvmscope.cuda.config import Config  # noqa: E402
from tvmscope.cuda.cubins.compile_pool import Failure, Job, compile_many  # noqa: E402
from tvmscope.cuda.cubins.compiled_kernel import CompiledKernel  # noqa: E402
from tvmscope.cuda.gpus import gpu_of  # noqa: E402
from tvmscope.cuda.kernel_bench import loaded as load_kernel  # noqa: E402
from tvmscope.cuda.library import call as library_call  # noqa: E402
from tvmscope.cuda.library.call import LibraryCall  # noqa: E402
from tvmscope.cuda.library.call import configs as library_configs  # noqa: E402
from tvmscope.cuda.packing import pack_weight  # noqa: E402
from tvmscope.cuda.reference import norm_sum, output_values, reference  # noqa: E402
from tvmscope.cuda.shortlist import best  # noqa: E402
from tvmscope.cuda.units import (  # noqa: E402
    Attention,
    Conv2d,
    Epilogue,
    Matmul,
    Norm,
    Pool,
    Pooled,
    Softmax,
    Tensor,
    Unit,
)
from tvmscope.errors import TvmscopeError, one_line  # noqa: E402

Array = np.ndarray[Any, np.dtype[Any]]
Launched = CompiledKernel | LibraryCall
TOLERANCE = {"float16": 4e-3, "bfloat16": 3e-2, "tf32": 4e-3, "tf32x3": 3e-5, "ieee": 3e-5}
"""Largest error over the largest value of the reference."""
SMALLEST = 1e-3
"""Where all of an output is smaller, as far behind an activation, errors are judged absolutely."""
OUT_OF_TIME = 3
OWN = ("output", "sum", "workspace", "counters", "scratch")


def main() -> int:
    """Parse and go."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("prepare")
    one.add_argument("folder", type=Path)
    one.add_argument("--count", type=int, default=12, help="drawn units per template")
    one.add_argument("--arch", default="sm_90")
    one = commands.add_parser("run")
    one.add_argument("folder", type=Path)
    one.add_argument("-o", "--output", type=Path, default=None, help="a JSON file")
    one.add_argument("--budget-s", type=float, default=300.0)
    one = commands.add_parser("calls")
    one.add_argument("-o", "--output", type=Path, default=None, help="a JSON file")
    one.add_argument("--budget-s", type=float, default=300.0)
    one.add_argument("--only", default="", help="one library: cublaslt or cudnn")
    one.add_argument("--each", type=int, default=3, help="algorithms of each library per unit")
    arguments = parser.parse_args()
    if arguments.command == "prepare":
        return prepare(arguments.folder, arguments.count, arguments.arch)
    if arguments.command == "calls":
        return calls(arguments.output, arguments.budget_s, arguments.only, arguments.each)
    return run(arguments.folder, arguments.output, arguments.budget_s)


def drawn(count: int, arch: str) -> Iterator[tuple[Unit, Config]]:
    """Small odd units with drawn configurations, and larger ones with the cost model's choice."""
    import draws

    gpu = gpu_of(arch)
    for make in draws.MAKERS:
        for seed in range(count):
            unit, config = make(seed)
            if config.template == "persistent" and not gpu.has_persistent:
                continue
            pdl = seed % 3 if gpu.has_dependent_launch else 0
            yield typed(unit, seed), replace(config, pdl=pdl)
    for seed in range(max(1, count // 3)):
        for unit in larger(seed):
            for estimate in best(unit, gpu, 2):
                yield unit, estimate.config


def typed(unit: Unit, seed: int) -> Unit:
    """Each type and way to multiply in turn: the interpreter's tests know two of them."""
    if unit.dtype == "float16":
        return replace(unit, dtype="bfloat16") if seed % 2 else unit
    if getattr(unit, "math", "") == "ieee":
        return replace(unit, math=("ieee", "tf32", "tf32x3")[seed % 3])  # type: ignore[call-arg]
    return unit


def larger(seed: int) -> Iterator[Unit]:
    """Shapes that fill tensor cores' tiles, and a little more or less."""
    rng = np.random.default_rng(seed)

    def odd(low: int, high: int) -> int:
        return int(rng.integers(low, high))

    tail = Epilogue(bias=True, residual="before", activation="relu")
    for kind in ({"dtype": "float16"}, {"dtype": "float32", "math": "tf32x3"}):
        c, side = 8 * odd(3, 20), odd(7, 30)
        conv = Conv2d(
            **kind, n=odd(1, 3), h=side, w=side + 1, c=c, oc=odd(30, 140), r=3, s=3,
            padding=(1, 1, 1, 1), stride=(odd(1, 3),) * 2, epilogue=tail,
        )  # fmt: skip
        yield conv
        yield replace(conv, pooled=Pooled(form="max", r=2, s=2))
        whole = replace(conv, h=11, w=13, stride=(2, 2))
        yield replace(whole, pooled=Pooled(form="mean", r=whole.p, s=whole.q))
        yield Matmul(**kind, m=odd(60, 200), n=odd(60, 200), k=8 * odd(10, 60), epilogue=tail)
        yield Matmul(**kind, m=1, n=odd(60, 1000), k=8 * odd(10, 60))
        yield Attention(**kind, batch=1, heads=3, queries=odd(60, 200), keys=odd(60, 200), dim=64)
    yield Softmax(dtype="float32", rows=odd(3, 90), columns=odd(3, 900), scale=0.5)
    forms: tuple[Literal["max", "mean"], ...] = ("max", "mean")
    for form in forms:  # of whole images, which is a template of its own
        side = odd(5, 16)
        yield Pool(
            dtype="float16", n=odd(1, 4), h=side, w=side + 1, c=odd(20, 300), form=form,
            r=side, s=side + 1,
        )  # fmt: skip


def prepare(folder: Path, count: int, arch: str) -> int:
    """Compile what is drawn."""
    pairs = list(dict.fromkeys(drawn(count, arch)))
    outcomes = compile_many([Job(unit=u, config=c, arch=arch) for u, c in pairs])
    work = [(u, 0.0, o) for (u, _), o in zip(pairs, outcomes, strict=True)]
    size = write_candidates(folder, work, {"arch": arch, "count": count})
    failures = [o for o in outcomes if isinstance(o, Failure)]
    for failure in failures:
        print(f"not compiled: {failure.job.unit.label}: {failure.reason}")
    print(f"{len(pairs) - len(failures)} kernels of {len(pairs)} in {folder}, {size >> 10} KiB")
    return 1 if failures else 0


def run(folder: Path, output: Path | None, budget_s: float) -> int:
    """Check every kernel of a folder; one that fails is a line, and the next is tried."""
    pairs = [(candidate.unit, candidate.kernel) for candidate in read_candidates(folder)]
    return check_all(pairs, output, budget_s)


def calls(output: Path | None, budget_s: float, only: str, each: int) -> int:
    """Check calls of the libraries; that one proposes fewer algorithms is no problem if it proposes
    one."""
    import library_units

    units = (*library_units.CONVOLUTIONS, *library_units.PRODUCTS)
    chosen = [(unit, config) for unit in units for config in library_configs(unit, each)]
    print(f"libraries here: {', '.join(library_call.here()) or 'none'}", flush=True)
    pairs = [(u, library_call.call_of(u, c)) for u, c in chosen if only in c.template]
    return check_all(pairs, output, budget_s)


def check_all(pairs: list[tuple[Unit, Launched]], output: Path | None, budget_s: float) -> int:
    """Check kernels or calls, in their order."""
    current_context()
    start, done, problems = time.monotonic(), Counter[str](), list[dict[str, str]]()
    left = 0
    for number, (unit, kernel) in enumerate(pairs):
        if time.monotonic() - start > budget_s:
            left = len(pairs) - number
            break
        try:
            reason = check(unit, kernel, seed=number)
        except (TvmscopeError, RuntimeError) as e:  # the driver's or a library's own words
            reason = one_line(e)
            if kernel.config.algorithm and re.search(r"proposes [1-9]\d* |its plan needs", reason):
                continue  # a candidate that is left out; the first was checked
        done[kernel.config.template] += 1
        if reason:
            label = f"{unit.label}, {kernel.config.label}"
            name = kernel.name if isinstance(kernel, CompiledKernel) else kernel.library
            problems.append({"unit": label, "kernel": name, "reason": reason})
            print(f"WRONG {label}: {reason}", flush=True)
    result = {"checked": dict(done), "kernels": sum(done.values()), "left": left}
    if output is not None:
        output.write_text(json.dumps(result | {"problems": problems}, indent=1))
    no_time = f", no time for {left} more" if left else ""
    print(f"{result['kernels']} kernels of {dict(done)}: {len(problems)} problems{no_time}")
    return 1 if problems else OUT_OF_TIME if left else 0


def check(unit: Unit, kernel: Launched, seed: int) -> str:
    """What is wrong with a kernel's results; empty where nothing is."""
    given, arguments = draw(unit, seed), bind(unit, kernel.config).arguments
    with Memory() as memory:
        place(memory, unit, kernel.config, given)
        loaded = load_kernel(kernel)
        hidden = [0] * kernel.hidden_pointers
        pointers = [memory[t.role] for t in arguments] + hidden
        roles = [t for t in arguments if t.role in ("output", "sum")]
        loaded.launch(pointers)
        first = {t.role: memory.read(t.role, t.size_bytes) for t in roles}
        loaded.launch(pointers)
        if isinstance(kernel, LibraryCall):
            replayed(lambda stream: loaded.launch(pointers, stream))
        else:
            loaded.launch(pointers)
        again = {t.role: memory.read(t.role, t.size_bytes) for t in roles}
        counters = [t for t in arguments if t.role == "counters"]
        left = any(any(memory.read(t.role, t.size_bytes)) for t in counters)
        loaded.close()
    (out,) = (t for t in roles if t.role == "output")
    if first != again:
        return "runs gave different bits"
    if left:
        return "a counter was not reset"
    sums = [t for t in roles if t.role == "sum"]
    return judge(unit, out, first["output"], given) or judge_sums(unit, sums, first, given)


def replayed(launch: Callable[[int], None]) -> None:
    """Record a launch in a CUDA graph, and run that."""
    stream, graph, ready = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    driver.call("cuStreamCreate", ctypes.byref(stream), 1)  # waits for no other stream
    driver.call("cuCtxSynchronize")
    driver.call("cuStreamBeginCapture_v2", stream, 2)  # relaxed
    launch(int(stream.value or 0))
    driver.call("cuStreamEndCapture", stream, ctypes.byref(graph))
    driver.call("cuGraphInstantiateWithFlags", ctypes.byref(ready), graph, ctypes.c_ulonglong(0))
    driver.call("cuGraphLaunch", ready, stream)
    driver.call("cuStreamSynchronize", stream)
    driver.call("cuGraphExecDestroy", ready)
    driver.call("cuGraphDestroy", graph)
    driver.call("cuStreamDestroy_v2", stream)


def judge_sums(
    unit: Unit, sums: list[Tensor], written: dict[str, bytes], given: dict[str, Array]
) -> str:
    """What is wrong with the sum that a norm keeps beside its output."""
    for tensor in sums:
        assert isinstance(unit, Norm)  # no other unit has one
        found = from_bytes(written["sum"], tensor.dtype)
        wanted = norm_sum(unit, given).reshape(-1)
        error = float(np.abs(found - wanted).max() / np.abs(wanted).max())
        if not error <= TOLERANCE[tolerance_key(unit)]:
            return f"its sum has an error of {error:.2e}"
    return ""


def judge(unit: Unit, out: Tensor, written: bytes, given: dict[str, Array]) -> str:
    """What is wrong with the bytes of an output."""
    buffer = from_bytes(written, out.dtype).reshape(out.shape)
    values = output_values(unit, buffer)
    wanted = reference(unit, given).reshape(values.shape)
    if not np.isfinite(values).all():
        return f"{np.count_nonzero(~np.isfinite(values))} values were not written, or are NaN"
    error = float(np.abs(values - wanted).max() / max(SMALLEST, np.abs(wanted).max()))
    if error > TOLERANCE[tolerance_key(unit)]:
        return f"error {error:.2e}"
    if np.count_nonzero(np.isfinite(buffer)) != values.size:
        return "values around the view were written"
    return ""


def tolerance_key(unit: Unit) -> str:
    """The type that the unit's values are rounded to, or how float32 is multiplied."""
    narrow = [d for d in (unit.dtype, *(t.dtype for t in unit.tensors if t.role == "output"))
              if d != "float32"]  # fmt: skip
    return narrow[0] if narrow else str(getattr(unit, "math", "ieee"))


def place(memory: Memory, unit: Unit, config: Config, given: dict[str, Array]) -> None:
    """All tensors on the device: inputs as drawn, outputs poisoned, counters zero."""
    for tensor in bind(unit, config).arguments:
        memory.allocate(tensor.role, tensor.size_bytes)
        if tensor.role in OWN:
            memory.fill(tensor.role, tensor.size_bytes, 0 if tensor.role == "counters" else 0xFF)
            continue
        values = given[tensor.role]
        if tensor.role == "weight":
            values = pack_weight(unit, config, values)
        memory.write(tensor.role, to_bytes(values, tensor.dtype))


def draw(unit: Unit, seed: int) -> dict[str, Array]:
    """Random tensors by role in float32, holding only values that their types can hold."""
    rng = np.random.default_rng(seed)
    return {
        t.role: from_bytes(
            to_bytes(rng.standard_normal(t.shape).astype(np.float32), t.dtype), t.dtype
        ).reshape(t.shape)
        for t in unit.tensors
        if t.role not in OWN
    }


def to_bytes(values: Array, dtype: str) -> bytes:
    """As the device stores them; numpy has no bfloat16: float32's upper half, rounded to even."""
    if dtype != "bfloat16":
        return np.ascontiguousarray(values, dtype).tobytes()
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16).tobytes()


def from_bytes(data: bytes, dtype: str) -> Array:
    """In float32 again, flat."""
    if dtype != "bfloat16":
        return np.frombuffer(data, dtype).astype(np.float32)
    return (np.frombuffer(data, np.uint16).astype(np.uint32) << 16).view(np.float32)


class Memory:
    """Allocations by name, which go with the `with` block."""

    def __init__(self) -> None:
        self.places: dict[str, int] = {}

    def __enter__(self) -> Memory:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        for pointer in self.places.values():
            if kind is None:  # after a fault the context is gone, and all calls fail
                driver.call("cuMemFree_v2", ctypes.c_uint64(pointer))

    def __getitem__(self, name: str) -> int:
        return self.places[name]

    def allocate(self, name: str, size: int) -> int:
        """So many bytes, not one more."""
        pointer = ctypes.c_uint64()
        driver.call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size))
        self.places[name] = pointer.value
        return pointer.value

    def fill(self, name: str, size: int, value: int) -> None:
        """Set every byte."""
        driver.call(
            "cuMemsetD8_v2", ctypes.c_uint64(self[name]), ctypes.c_ubyte(value),
            ctypes.c_size_t(size),
        )  # fmt: skip

    def write(self, name: str, data: bytes) -> None:
        """Copy to the device."""
        driver.call(
            "cuMemcpyHtoD_v2", ctypes.c_uint64(self[name]), data, ctypes.c_size_t(len(data))
        )

    def read(self, name: str, size: int) -> bytes:
        """Wait for what was launched, and copy from the device."""
        driver.call("cuCtxSynchronize")
        data = ctypes.create_string_buffer(size)
        driver.call("cuMemcpyDtoH_v2", data, ctypes.c_uint64(self[name]), ctypes.c_size_t(size))
        return data.raw


def current_context() -> None:
    """Make the first GPU's primary context current."""
    device, context = ctypes.c_int(), ctypes.c_void_p()
    driver.call("cuInit", 0)
    driver.call("cuDeviceGet", ctypes.byref(device), 0)
    driver.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    driver.call("cuCtxSetCurrent", context)


if __name__ == "__main__":
    sys.exit(main())
