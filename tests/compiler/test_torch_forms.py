"""Forms of torch operators, each compiled and beside what PyTorch computes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from support.torch_forms import FORMS, IN_TORCH
from tvmscope.compiler import in_memory
from tvmscope.compiler.describe.sources import Imported
from tvmscope.compiler.frontends.torch.importer import decomposed, translate
from tvmscope.core.options import CompileOptions
from tvmscope.models import flat

FAST = (
    "lstm with states", "gru", "deconv3d asymmetric", "max_pool2d indices padded",
    "adaptive_max_pool1d", "cumsum of booleans", "cdist", "index apart", "index negative",
    "index by constants", "unfold", "nearest2d by 1.5", "linear", "fp16 conv", "float64",
    "mutated buffer", "fft", "bincount",
)  # fmt: skip
"""What this project adds to TVM's importer; all others are slow tests."""


def imported(name: str) -> Imported:
    call = flat.flat_call(FORMS[name].module(), FORMS[name].tensors(), {})
    with torch.no_grad():
        program = torch.export.export(call.module, call.tensors, strict=False)
    return translate(decomposed(program), name, fallback=name in IN_TORCH)


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n in FAST else [pytest.mark.slow]) for n in FORMS]
)
def test_a_form_gives_what_pytorch_gives(name: str) -> None:
    form = FORMS[name]
    wanted = flat.flatten(form.module()(*form.tensors())).values()
    module = imported(name)
    assert bool(module.fallbacks) == (name in IN_TORCH)
    found = in_memory.compile_here(module, CompileOptions())([t.numpy() for t in form.tensors()])
    for ours, theirs in zip(found, map(flat.to_numpy, wanted), strict=True):
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
        kind = np.float64 if ours.dtype.kind == "f" else ours.dtype
        np.testing.assert_allclose(
            ours.astype(kind), theirs.astype(kind), rtol=form.tolerance, atol=form.tolerance / 10
        )


def test_a_long_lstm_is_no_larger_than_a_short_one() -> None:
    sizes = []
    for steps in (4, 64):
        lstm = torch.nn.LSTM(8, 5).eval()
        program = decomposed(torch.export.export(lstm, (torch.zeros(steps, 2, 8),)))
        sizes.append(len(list(program.graph.nodes)))
    assert sizes[0] == sizes[1] < 20
