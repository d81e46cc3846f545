"""Masks and assignments by index as PyTorch has them, by torch.export and by ONNX: its own results.

Each case is a function of x (4 x 6, floats), a mask of the same shape and five whole numbers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import tvm

from tvmscope.compiler import frontends, pipeline, targets
from tvmscope.core.model import Prepared
from tvmscope.core.options import CompileOptions, LoadOptions
from tvmscope.core.target import Target
from tvmscope.models.prepare import prepare

Array = np.ndarray[Any, Any]
CASES = {
    "where": "return torch.where(mask, x, -x)",
    "masked fill": "return (x + 1).masked_fill(mask, -1.5)",
    "masked fill by a tensor": "return (x + 1).masked_fill(mask, x.sum())",
    "mask broadcast": "return x.masked_fill(mask[:, :1], 0.0)",
    "assignment of a number to a mask": "y = x * 2\n        y[mask] = 7.0\n        return y",
    "assignment to rows of a mask": "y = x * 2\n        y[mask[:, 0]] = 7.0\n        return y",
    "assignment to a comparison": "y = x * 2\n        y[y < 0] = 0.25\n        return y",
    "assignment to a mask of the last axis": (
        "y = x * 2\n        y[:, mask[0]] = 3.0\n        return y"
    ),
    "index_put of rows": "return x.index_put((n[:3],), x[:3] * 2)",
    "index_put of elements": "return x.index_put((n[:3], n[1:4]), x[0, :3])",
    "index_put of a number": "return x.index_put((n[:3], n[1:4]), torch.tensor(5.0))",
    "index_put of broadcast indices": "return x.index_put((n[:2, None], n[None, :3]), x[:2, :3])",
    "index_put that adds duplicates": (
        "return x.index_put((n % 2, n % 3), x[0, :5], accumulate=True)"
    ),
    "index_put that adds rows": "return x.index_put((n % 2,), x[0].repeat(5, 1), accumulate=True)",
    "index_put by a mask that adds": (
        "return x.index_put((mask,), torch.tensor(2.0), accumulate=True)"
    ),
    "assignment to columns": "y = x * 2\n        y[:, n[:3]] = x[:, :3]\n        return y",
    "assignment to every second": "y = x * 2\n        y[:, 1::2] = x[:, :3]\n        return y",
    "masked scatter": "return x.masked_scatter(mask, -x)",
    "scatter": "return x.scatter(1, n[:4, None] % 6, x[:, :1] * 3)",
    "scatter_add": "return x.scatter_add(1, (n[:4, None] * 0 + n[None, :]) % 2, x[:, :5])",
}
IN_ONNX = [
    "where", "masked fill", "masked fill by a tensor", "mask broadcast", "index_put of rows",
    "index_put of elements", "index_put of a number", "index_put of broadcast indices",
    "index_put that adds duplicates", "index_put that adds rows", "assignment to columns",
    "assignment to every second", "scatter", "scatter_add",
]  # fmt: skip
"""An assignment to a mask becomes NonZero and ScatterND of as many updates as the mask has places,
which TVM's importer refuses."""
IN_TORCH = [name for name in CASES if name not in ("masked scatter", "scatter_add")]
"""The others are refused by name: TVM's importer has no such operators."""
MODULE = """
import torch

class Model(torch.nn.Module):
{methods}
    def forward(self, x, mask, n):
        return {calls}

def get_init_inputs():
    return []

def get_inputs():
    made = torch.Generator().manual_seed(0)
    x = torch.randn(4, 6, generator=made)
    return [x, torch.rand(4, 6, generator=made) < 0.5, torch.tensor([3, 0, 2, 1, 0])]
"""


def source(cases: list[str]) -> str:
    """A model with one output for each case."""
    methods = [
        f"    def f{n}(self, x, mask, n):\n        {CASES[case]}\n" for n, case in enumerate(cases)
    ]
    calls = ", ".join(f"self.f{n}(x, mask, n)" for n in range(len(cases)))
    return MODULE.format(methods="\n".join(methods), calls=calls)


def results(ready: Prepared, host: Target, inputs: list[Array]) -> list[Array]:
    target = tvm.target.Target(targets.to_tvm(host))
    module = pipeline.run(frontends.import_model(ready).module, host, target, CompileOptions())
    built = tvm.relax.build(module.module, target, relax_pipeline=None)
    machine = tvm.relax.VirtualMachine(built, tvm.cpu())
    return [found.numpy() for found in machine["main"](*(tvm.runtime.tensor(a) for a in inputs))]


@pytest.mark.parametrize("path, cases", [("torch", IN_TORCH), ("onnx", IN_ONNX)])
def test_each_case_is_what_pytorch_computes(
    path: str, cases: list[str], host: Target, tmp_path: Path
) -> None:
    text = source(cases)
    (tmp_path / "net.py").write_text(text)
    names: dict[str, Any] = {}
    exec(text, names)
    model = prepare(str(tmp_path / "net.py"), str(tmp_path / "p"), LoadOptions())
    ready = Prepared(tmp_path / "p", model)
    if path == "onnx":
        again = prepare(str(ready.onnx_path), str(tmp_path / "q"), LoadOptions())
        ready = Prepared(tmp_path / "q", again)
    rng = np.random.default_rng(1)
    x = rng.standard_normal((4, 6)).astype(np.float32)
    arrays = [x, rng.random((4, 6)) < 0.3, np.array([1, 1, 3, 0, 2])]
    wanted = names["Model"]()(*(torch.from_numpy(a) for a in arrays))
    for case, found, expected in zip(cases, results(ready, host, arrays), wanted, strict=True):
        np.testing.assert_allclose(found, expected.numpy(), rtol=1e-5, atol=1e-6, err_msg=case)
