"""A process in which Triton interprets kernels on the CPU, shared by all tests that need one."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

import pytest

from tvmscope.measure.worker import Worker


@pytest.fixture(scope="session")
def triton() -> None:
    if importlib.util.find_spec("triton") is None:
        pytest.skip("Triton is not installed: pip install 'triton>=3.6'")


@pytest.fixture(scope="session")
def interpreter(triton: None) -> Iterator[Worker]:
    if importlib.util.find_spec("torch") is None:
        pytest.skip("Triton's interpreter takes PyTorch tensors: pip install 'tvmscope[torch]'")
    # the variable decides when Triton is imported, so this process cannot be the tests' own
    with Worker("interpreter", env={"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}) as worker:
        yield worker
