"""Masks and assignments by index as PyTorch has them, by torch.export and by ONNX: its own results.

Each case is a function of x (5 x 7, floats), a mask of the same shape and five whole numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
import tvm

from tvmscope.compiler import frontends, pipeline, targets
from tvmscope.core.model import Prepared
from tvmscope.core.options import CompileOptions, LoadOptions
from tvmscope.core.target import Target
from tvmscope.errors import ImportModelError
from tvmscope.models.prepare import prepare
from tvmscope.storage.files import write_npz

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
    "assignment of a row to a mask": "y = x * 2\n        y[mask[:, 0]] = x[0]\n        return y",
    "assignment of what a mask chooses": (
        "y = x * 2\n        y[mask] = x[mask].exp() - 1\n        return y"
    ),
    "addition to a mask": "y = x * 2\n        y[mask] += 1\n        return y",
    "multiplication of a mask of the last axis": (
        "y = x * 2\n        y[:, mask[0]] *= 3\n        return y"
    ),
    "assignment to the places of a mask": (
        "y = x * 2\n        i = mask.nonzero(as_tuple=True)\n        y[i] = -x[i]\n        return y"
    ),
    "assignments to two masks": (
        "y = x * 2\n        y[mask] = 7.0\n        y[y < 0] = x.mean()\n        return y"
    ),
    "assignment to a mask of a row": "y = x * 2\n        y[1, mask[0]] = 3.0\n        return y",
    "masked scatter": "return x.masked_scatter(mask, -x)",
    "masked scatter of a broadcast mask": "return x.masked_scatter(mask[:, :1], -x)",
    "scatter": "return x.scatter(-1, n[:4, None] % 6, x[:4, :1] * 3)",
    "scatter_add": "return x.scatter_add(1, (n[:4, None] * 0 + n[None, :]) % 2, x[:4, :5])",
    "scatter of some": "return x.scatter(1, n[:4, None] % 6, x * 3)",
    "scatter_add of some": "return x.scatter_add(0, n[:3, None] % 2, x)",
    "scatter_reduce": "return x.scatter_reduce(0, n[:, None].expand(5, 7), -x, 'amax')",
    "scatter_reduce by multiplying": "return x.scatter_reduce(1, n[None, :3], x, 'prod')",
}
NAMES = ["x", "mask", "n"]
OMITTED = {
    # TVM's importer takes the mask for indices; the model's ONNX export does it
    "torch": [
        "assignment of what a mask chooses", "addition to a mask",
        "multiplication of a mask of the last axis", "assignment to the places of a mask",
    ],
    # the exporter fails, or what it writes does not run in ONNX Runtime
    "onnx": [
        "assignment to a mask of the last axis", "scatter of some", "scatter_add of some",
        "scatter_reduce by multiplying", "multiplication of a mask of the last axis",
    ],
    "older exporter": [
        "assignment to rows of a mask", "assignment of a row to a mask", "scatter of some",
        "scatter_reduce", "scatter_reduce by multiplying",
        # it forgets to add
        "index_put that adds duplicates", "index_put that adds rows",
        "index_put by a mask that adds",
    ],
}  # fmt: skip
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
    x = torch.randn(5, 7, generator=made)
    return [x, torch.rand(5, 7, generator=made) < 0.5, torch.tensor([3, 0, 2, 1, 0])]
"""


def source(cases: list[str]) -> str:
    """A model with one output for each case."""
    methods = [
        f"    def f{n}(self, x, mask, n):\n        {CASES[case]}\n" for n, case in enumerate(cases)
    ]
    calls = ", ".join(f"self.f{n}(x, mask, n)" for n in range(len(cases)))
    return MODULE.format(methods="\n".join(methods), calls=calls)


def machine(ready: Prepared, host: Target) -> Callable[..., list[Array]]:
    """The compiled model."""
    target = tvm.target.Target(targets.to_tvm(host))
    module = pipeline.run(frontends.import_model(ready).module, host, target, CompileOptions())
    built = tvm.relax.build(module.module, target, relax_pipeline=None)
    main = tvm.relax.VirtualMachine(built, tvm.cpu())["main"]

    def run(*arrays: Array) -> list[Array]:
        given = dict(zip(NAMES, arrays, strict=True))
        found = main(*(tvm.runtime.tensor(given[spec.name]) for spec in ready.model.inputs))
        return [found.numpy()] if hasattr(found, "numpy") else [f.numpy() for f in found]

    return run


def made_ready(path: str, text: str, folder: Path) -> tuple[Prepared, Any]:
    """The model of a source, by way of torch.export or of one of PyTorch's ONNX exporters."""
    names: dict[str, Any] = {}
    exec(text, names)
    model, given = names["Model"](), tuple(names["get_inputs"]())
    file, inputs = folder / "net.py", folder / "inputs.npz"
    file.write_text(text)
    if path == "torch":
        return Prepared(folder / "p", prepare(str(file), str(folder / "p"), LoadOptions())), model
    file = folder / "net.onnx"
    torch.onnx.export(model, given, file, dynamo=path == "onnx", input_names=NAMES)
    taken = {value.name for value in onnx.load(file).graph.input}
    arrays = {name: v.numpy() for name, v in zip(NAMES, given, strict=True) if name in taken}
    write_npz(inputs, arrays)
    options = LoadOptions(inputs_file=str(inputs))
    return Prepared(folder / "p", prepare(str(file), str(folder / "p"), options)), model


@pytest.mark.filterwarnings("ignore")  # of the older exporter, about itself
@pytest.mark.parametrize("path", OMITTED)
def test_each_case_is_what_pytorch_computes(path: str, host: Target, tmp_path: Path) -> None:
    cases = [case for case in CASES if case not in OMITTED[path]]
    ready, model = made_ready(path, source(cases), tmp_path)
    run = machine(ready, host)
    for share in (0.0, 0.3, 1.0):
        rng = np.random.default_rng(1)
        x, mask = rng.standard_normal((5, 7)).astype(np.float32), rng.random((5, 7)) < share
        arrays = [x, mask, np.array([1, 1, 3, 0, 2])]
        wanted = model(*(torch.from_numpy(a) for a in arrays))
        for case, found, expected in zip(cases, run(*arrays), wanted, strict=True):
            said = f"{case}, {share:.0%} of the mask"
            np.testing.assert_allclose(found, expected.numpy(), rtol=1e-5, atol=1e-6, err_msg=said)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", OMITTED["torch"])
def test_what_a_mask_chooses_is_refused_by_the_torch_importer(
    case: str, host: Target, tmp_path: Path
) -> None:
    ready, _ = made_ready("torch", source([case]), tmp_path)
    with pytest.raises(ImportModelError, match=r"run time only|nonzero"):
        machine(ready, host)


FIVE_VALUES = {
    "assignment": "y = x * 2\n        y[mask] = x[0, :5]\n        return y",
    "masked scatter": "return x.masked_scatter(mask, x[0, :5] * 1)",
}
"""For a mask of five places."""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("path", OMITTED)
@pytest.mark.parametrize("kind", FIVE_VALUES)
def test_too_few_values_for_a_mask_give_no_number(
    path: str, kind: str, host: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyTorch fails there."""
    monkeypatch.setitem(CASES, kind, FIVE_VALUES[kind])
    five = "torch.arange(35).view(5, 7) % 7 == 2"
    text = source([kind]).replace("torch.rand(5, 7, generator=made) < 0.5", five)
    ready, model = made_ready(path, text, tmp_path)
    run = machine(ready, host)
    x, n = np.linspace(-1, 1, 35, dtype=np.float32).reshape(5, 7), np.arange(5)
    for places in (5, 6):
        mask = np.random.default_rng(0).permutation(35).reshape(5, 7) < places
        (found,) = run(x, mask, n)
        if places == 5:
            wanted = model(*(torch.from_numpy(a) for a in (x, mask, n)))
            np.testing.assert_allclose(found, wanted.numpy())
        else:
            assert np.isnan(found[mask]).all()
            assert not np.isnan(found[~mask]).any()
