"""Every form of a call of NVIDIA's libraries on a GPU against numpy, with the driver alone."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
for part in ("scripts", "tests/cuda"):
    sys.path.insert(0, str(ROOT / part))

import cuda_odd  # noqa: E402
import library_units  # noqa: E402

from tvmscope.cuda.library import call as library  # noqa: E402
from tvmscope.cuda.library.cudnn import find  # noqa: E402
from tvmscope.cuda.units import Conv2d  # noqa: E402
from tvmscope.errors import RunError  # noqa: E402
from tvmscope.machine import cuda_device  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(cuda_device.find() is None, reason="no GPU"),
    pytest.mark.skipif(find() is None, reason="no cuDNN"),
]


@pytest.mark.parametrize("unit", library_units.CONVOLUTIONS, ids=lambda unit: unit.label)
def test_cudnn_computes_the_unit(unit: Conv2d) -> None:
    cuda_odd.current_context()
    for number, config in enumerate(library.configs(unit, 8)):
        if config.template != "cudnn":
            continue
        try:
            wrong = cuda_odd.check(unit, library.call_of(unit, config), seed=number)
        except RunError as e:
            wrong = "" if config.algorithm else str(e)  # only the first engine must be there
        assert wrong == "", config.label
