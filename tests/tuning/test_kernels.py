"""A kernel alone in a worker: its weights come from as far away as in the model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import te

from tvmscope.tuning.trials import kernels


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """result = data + weights summed over its rows."""
    data, weights = te.placeholder((256,), name="d"), te.placeholder((1024, 256), name="w")
    k = te.reduce_axis((0, 1024), "k")
    total = te.compute((256,), lambda j: te.sum(weights[k, j], axis=k), name="total")
    result = te.compute((256,), lambda j: data[j] + total[j], name="result")
    func = te.create_prim_func([data, weights, result]).with_attr("global_symbol", "main")
    file = tmp_path_factory.mktemp("kernel") / "kernel.so"
    tvm.tirx.build(tvm.IRModule({"main": func}), target="llvm").export_library(str(file))
    return file


@pytest.mark.parametrize(("model_bytes", "copies"), [(0, 1), (5 << 20, 5), (1 << 40, 96)])
def test_large_weights_take_turns_with_copies_and_nothing_else_changes(
    library: Path, model_bytes: int, copies: int
) -> None:
    shapes = (((256,), "float32"), ((1024, 256), "float32"), ((256,), "float32"))
    request = kernels.KernelRequest(
        library=library, args=shapes, seed=0, threads=1, weights_bytes=model_bytes
    )
    kernel = kernels.load(request)
    used = {id(next(kernel._turns)[1]) for _ in range(2 * copies)}
    assert len(used) == copies
    data, weights, _ = kernels.fill(shapes, 0)
    for _ in range(3):
        (found,) = kernel.outputs().values()
        np.testing.assert_allclose(found, data + weights.sum(0), rtol=1e-4, atol=1e-4)
