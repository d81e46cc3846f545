"""GPUs: loops bound to threads, shared memory, tensor cores; measured where there is one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tvmscope.core.target import Target
from tvmscope.errors import one_line
from tvmscope.learn import exercises
from tvmscope.learn.facts import Exhibit
from tvmscope.learn.lesson import Lesson, relative_error
from tvmscope.machine import cuda_device
from tvmscope.measure.remote import here
from tvmscope.messages import Seconds, Text, msg

if TYPE_CHECKING:
    import tvm
    from tvm import s_tir, tirx

BLOCK, DEPTH = 16, 16
"""The threads of a block along each side, and the depth of the tiles in shared memory."""
_ARCH = "sm_80"
"""The architecture to compile for without a GPU: the oldest with the tensor cores in wide use."""


def product(n: int, dtype: str = "float32") -> tirx.PrimFunc:
    """Compute C = A x B, in half precision with sums in single."""
    from tvm import te

    a = te.placeholder((n, n), dtype, name="A")
    b = te.placeholder((n, n), dtype, name="B")
    k = te.reduce_axis((0, n), name="k")

    def value(i: Any, j: Any) -> Any:
        return te.sum(a[i, k].astype("float32") * b[k, j].astype("float32"), axis=k)

    return te.create_prim_func([a, b, te.compute((n, n), value, name="C")])


def bound(n: int) -> s_tir.Schedule:
    """Bind a thread to each element."""
    from tvm import s_tir

    sch = s_tir.Schedule(product(n))
    i, j, _k = sch.get_loops("C")
    i_o, i_i = sch.split(i, factors=[None, BLOCK])
    j_o, j_i = sch.split(j, factors=[None, BLOCK])
    sch.reorder(i_o, j_o, i_i, j_i)
    for loop, axis in ((i_o, "blockIdx.y"), (j_o, "blockIdx.x"), (i_i, "threadIdx.y")):
        sch.bind(loop, axis)
    sch.bind(j_i, "threadIdx.x")
    return sch


def shared(n: int) -> s_tir.Schedule:
    """Do the same, with tiles of A and B in the memory that a block's threads share."""
    sch = bound(n)
    *_, k = sch.get_loops("C")
    k_o, _k_i = sch.split(k, factors=[None, DEPTH])
    for operand in (0, 1):
        copy = sch.cache_read("C", operand, "shared")
        sch.compute_at(copy, k_o)
        row, column = sch.get_loops(copy)[-2:]
        sch.bind(row, "threadIdx.y")
        sch.bind(column, "threadIdx.x")
    return sch


def tensor_cores(n: int) -> s_tir.Schedule:
    """Apply TVM's own rule for matrix products in half precision."""
    from tvm.s_tir import Schedule
    from tvm.s_tir.dlight.gpu import Matmul

    found = Matmul().apply(product(n, "float16"), _target(), False)
    assert isinstance(found, Schedule)
    return found


def _target() -> tvm.target.Target:
    import tvm

    from tvmscope.compiler.targets import resolve, to_tvm

    text = "cuda" if cuda_device.find() else f"cuda:{_ARCH}"
    return tvm.target.Target(to_tvm(resolve(text)))


def exhibits(size: int, target: Target, live: bool) -> tuple[Exhibit, ...]:
    """Show three kernels: their CUDA, an explanation, and their time if there is a GPU."""
    from tvmscope.runtime import tvm_compat

    tvm_compat.import_tvm(torch=False)
    tvm_compat.import_tensor_intrinsics()
    shown = [_where()]
    for title, make, words in _KERNELS:
        sch = make(size)
        source = cuda_source(sch)
        said = [words(size, source), *_measured(sch, size)]
        text: Text = said[0]
        for more in said[1:]:
            text = msg("{first} {rest}", first=text, rest=more)
        shown.append(Exhibit(title=title, words=text, code=source, language="cuda"))
    return tuple(shown)


def _where() -> Exhibit:
    device = cuda_device.find()
    if device is None:
        words = msg(
            "There is no GPU here. The kernels are compiled for {arch} and explained; with a GPU "
            "they are also run, checked and timed.",
            arch=_ARCH,
        )
    else:
        words = msg("The kernels run on {name}.", name=device.name)
    return Exhibit(title=msg("The machine"), words=words)


def _said_bound(n: int, source: str) -> Text:
    return msg(
        "bind turns loops into threads: blockIdx and threadIdx take the place of the outer loops, "
        "so that {threads} threads run, {block} in a block. What is left is the sum of one thread: "
        "{reads} numbers read from main memory for {flops} operations.",
        threads=n * n,
        block=BLOCK * BLOCK,
        reads=2 * n,
        flops=2 * n,
    )


def _said_shared(n: int, source: str) -> Text:
    return msg(
        "A block's threads need the same rows of A and columns of B. They fetch a tile together "
        "into shared memory ({bytes} bytes here), wait for each other ({syncs} times "
        "__syncthreads in the loop), and read it {times} times from there.",
        bytes=4 * (BLOCK * DEPTH * 2),
        syncs=source.count("__syncthreads"),
        times=BLOCK,
    )


def _said_tensor(n: int, source: str) -> Text:
    count = source.count("mma_sync") + source.count("mma.sync")
    return msg(
        "Tensor cores multiply small matrices of half precision in one instruction of a whole "
        "warp: the CUDA below names them {count} times. TVM's rule tensorizes the loops, keeps "
        "tiles in shared memory and sums in single precision.",
        count=count,
    )


_KERNELS: tuple[tuple[Text, Callable[[int], Any], Callable[[int, str], Text]], ...] = (
    (msg("1. bind: loops become threads"), bound, _said_bound),
    (msg("2. Shared memory: a tile for the whole block"), shared, _said_shared),
    (msg("3. Tensor cores: small matrices in one instruction"), tensor_cores, _said_tensor),
)


def cuda_source(sch: s_tir.Schedule) -> str:
    """Return the CUDA that TVM generates; the CUDA compiler is needed only to run it."""
    return _kernel_text(str(_compiled(sch).imports[0].inspect_source("cuda")))


def _compiled(sch: s_tir.Schedule) -> Any:
    import tvm

    target = tvm.target.Target(_target(), host=tvm.target.Target("llvm"))
    return tvm.compile(_only(sch), target=target).mod


def _only(sch: s_tir.Schedule) -> tvm.IRModule:
    import tvm

    func = next(f for _, f in sch.mod.functions_items())
    return tvm.IRModule({"main": func.with_attr("global_symbol", "main")})


def _kernel_text(source: str) -> str:
    """Return the kernel's text without the helper functions and headers before it."""
    place = source.rfind('extern "C" __global__')
    return source[place:] if place >= 0 else source


def _measured(sch: s_tir.Schedule, n: int) -> list[Text]:
    """Measure the time on this machine's GPU, checked against numpy; nothing without a GPU."""
    if cuda_device.find() is None:
        return []
    try:
        seconds, error = _run(sch, n)
    except Exception as e:  # a driver's error must not end the lesson
        return [msg("It could not be run here: {reason}.", reason=one_line(e))]
    return [
        msg(
            "It takes {time}: {rate:.0f} GFLOP/s; it differs from numpy by {error:.0e}.",
            time=Seconds(seconds),
            rate=2 * n**3 / seconds * 1e-9,
            error=error,
        )
    ]


def _run(sch: s_tir.Schedule, n: int) -> tuple[float, float]:
    import tvm

    from tvmscope.runtime import load_model

    load_model.choose_cuda_compiler()
    module = _compiled(sch)
    rng = np.random.default_rng(0)
    dtype = str(_only(sch)["main"].params[0].dtype)
    a, b = (rng.standard_normal((n, n)).astype(dtype) for _ in range(2))
    device = tvm.device("cuda")
    args = [tvm.runtime.tensor(x, device) for x in (a, b, np.zeros((n, n), np.float32))]
    module["main"](*args)
    expected = a.astype(np.float32) @ b.astype(np.float32)
    error = relative_error(args[-1].numpy(), expected)
    timer = module.time_evaluator("main", device, number=3, repeat=9, min_repeat_ms=5)
    return float(np.median(timer(*args).results)), error


LESSON = Lesson(
    name="gpu",
    title=msg("GPUs: threads, shared memory, tensor cores"),
    idea=msg(
        "A GPU runs thousands of threads, in blocks that share a small fast memory. A schedule for "
        "it says three things: which loops become blocks and threads (bind), which data the "
        "threads of a block fetch together (cache_read into 'shared'), and which part is done by "
        "the tensor cores (tensorize).\n\n"
        "The same matrix product three times. TVM compiles for a GPU on any machine: the CUDA "
        "below is what it would run."
    ),
    size=1024,
    smallest=128,
    exhibits=here(exhibits),
    exercise=exercises.number(
        msg(
            "A block of 16 x 16 threads computes 16 x 16 elements. Without shared memory its "
            "threads read 2 numbers for each step of the sum and thread. How many times fewer "
            "numbers come from main memory when they share tiles?"
        ),
        lambda study: BLOCK,
        lambda study, right: msg(
            "Yes: each number of a tile is used by all {count} threads of a row or column.",
            count=right,
        ),
    ),
    closing=msg("Next: tvmscope learn search"),
)
