"""The opponents, in a worker: our rule, MetaSchedule within a budget, PyTorch's matrix product.

All compute the product of the game's own matrices, and each result is checked before it is timed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tvmscope import extras
from tvmscope.errors import BackendUnavailable, RunError
from tvmscope.learn.lesson import relative_error
from tvmscope.learn.workloads import MATMUL
from tvmscope.measure.remote import here
from tvmscope.messages import msg

if TYPE_CHECKING:
    from tvmscope.learn.step_builder import StepBuilder

BUDGET_S = 15.0
"""The time limit of MetaSchedule's search before a game begins, from its first candidate on."""


def ours(builder: StepBuilder, values: int) -> list[float]:
    """Return the seconds of our pipeline's kernel: the right matrix is constant, like a layer's
    weights, so that it is packed in advance."""
    import tvm
    from tvm import relax

    from tvmscope.compiler import pipeline
    from tvmscope.compiler.targets import to_tvm
    from tvmscope.core.options import CompileOptions

    a, b = builder.matrices()
    block = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(a.shape, "float32"))
    with block.function("main", [x]):
        with block.dataflow():
            out = block.emit_output(relax.op.matmul(x, relax.const(b)))
        block.emit_func_output(out)
    where = tvm.target.Target(to_tvm(builder.target), host=to_tvm(builder.target))
    lowered = pipeline.run(block.get(), builder.target, where, CompileOptions())
    built = relax.build(lowered.module, where, relax_pipeline=None)
    main = relax.VirtualMachine(built, tvm.cpu())["main"]
    given = tvm.runtime.tensor(a)
    _check(main(given).numpy(), a, b)
    return _timed(lambda: main(given), values)


def searched(builder: StepBuilder, budget_s: float) -> tuple[float, int]:
    """Return the seconds of the best schedule that MetaSchedule finds in time, and its trials."""
    from tvmscope.learn.lessons.search import evolved, rater

    extras.require("xgboost", why="MetaSchedule")
    size = len(builder.matrices()[0])
    deadline, best, tried = float("inf"), 0.0, 0
    for speed in evolved(MATMUL.make(size), builder.target, rater(size, builder.target)):
        best, tried = max(best, speed), tried + 1
        if tried == 1:  # TVM's intrinsics were imported before it
            deadline = time.monotonic() + budget_s
        if time.monotonic() > deadline:
            break
    if not best:
        raise RunError(
            msg("MetaSchedule found nothing in {budget:.0f} s ({tried} tried)", budget=budget_s,
                tried=tried)
        )  # fmt: skip
    return 2.0 * size**3 / (best * 1e9), tried


def pytorch(size: int, threads: int, values: int) -> tuple[str, list[float]]:
    """Return the library of PyTorch's matrix product, and its seconds; in a separate process."""
    if (reason := extras.missing("torch")) is not None:
        raise BackendUnavailable(reason)
    import torch

    torch.set_num_threads(threads)
    rng = np.random.default_rng(0)
    a, b = (torch.from_numpy(rng.random((size, size), dtype=np.float32)) for _ in range(2))
    library = "MKL" if torch.backends.mkl.is_available() else "BLAS"
    _check((a @ b).numpy(), a.numpy(), b.numpy())
    return library, _timed(lambda: torch.matmul(a, b), values)


def _check(found: np.ndarray[Any, Any], a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> None:
    if relative_error(found, a @ b) > MATMUL.tolerance:
        raise RunError(msg("its result is wrong"))


def _timed(run: Callable[[], object], values: int) -> list[float]:
    """Return the times after a warm-up of as many runs."""
    found = []
    for _ in range(2 * values):
        start = time.perf_counter()
        run()
        found.append(time.perf_counter() - start)
    return found[values:]


OURS, SEARCHED, PYTORCH = here(ours), here(searched), here(pytorch)
