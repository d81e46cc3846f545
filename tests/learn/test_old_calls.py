"""What `lint` says is gone is gone from the installed TVM, and what it recommends is there."""

from __future__ import annotations

import importlib
from functools import reduce

import pytest

from tvmscope.lint.old_calls import OLD_CALLS
from tvmscope.runtime import tvm_compat


@pytest.fixture(scope="module", autouse=True)
def _tvm() -> None:
    tvm_compat.import_tvm(torch=False)
    tvm_compat.import_tensor_intrinsics()


def _found(path: str) -> bool:
    """Whether a dotted name is a module, or an attribute of one."""
    parts = path.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            module = importlib.import_module(".".join(parts[:cut]))
        except ImportError:
            continue
        try:
            reduce(getattr, parts[cut:], module)
        except AttributeError:
            return False
        return True
    return False


@pytest.mark.parametrize("call", OLD_CALLS, ids=lambda call: call.name)
def test_it_is_gone_and_its_successor_is_there(call) -> None:
    assert not _found(call.on + call.name)
    assert [name for name in call.names if not _found(name)] == []
