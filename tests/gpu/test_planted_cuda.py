"""A float32 GEMM that could use less, built, run and profiled on a real GPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import tvmscope
from support.command import save_onnx
from support.planted import chain, constant, weights
from tvmscope.core.session import Session
from tvmscope.diagnose.rules.tensor_cores_unused import RULE
from tvmscope.machine import cuda_device

_SIZE, _COUNT = 2048, 3
"""Each product runs for a good part of a millisecond on CUDA cores: no launch hides behind it."""


def _tensor_core_device() -> bool:
    device = cuda_device.find()
    return device is not None and int("".join(filter(str.isdigit, device.arch))) >= 70


pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not _tensor_core_device(), reason="no GPU with tensor cores here"),
]


@pytest.fixture(scope="module")
def analyzed(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Session]:
    """Square products one after another, analysed in a precision; once each."""
    folder, done = tmp_path_factory.mktemp("gemm"), dict[str, Session]()
    nodes = [constant("w", weights(_SIZE, _SIZE)), *chain(*(("MatMul", "w"),) * _COUNT)]
    model: Path = save_onnx(folder / "gemm.onnx", *nodes, shape=(_SIZE, _SIZE))

    def analyze(precision: str) -> Session:
        if precision not in done:
            done[precision] = tvmscope.analyze(
                str(model), target="cuda", precision=precision, backends=("tvmscope",),
                # generated kernels multiply float32 on tensor cores, too: TVM's own do not
                graph=False, disabled_passes=("place-units",),
                duration_s=0.5, output=folder / precision,
            )  # fmt: skip
        return done[precision]

    return analyze


def _spent_s(session: Session) -> float:
    """The time of the products' kernels."""
    (profile,) = session.profiles
    found = [k for k in profile.kernels if any("MatMul" in op for op in k.source_ops)]
    assert sum(k.calls for k in found) >= _COUNT
    return sum(k.total_s for k in found)


def test_a_gemm_in_float32_that_could_use_less(analyzed: Callable[[str], Session]) -> None:
    session = analyzed("float32")
    first = session.findings[0]
    assert first.rule == RULE.id, [f.title for f in session.findings]
    assert "float32" in first.title
    assert first.fix == {"precision": "float16"}
    assert first.saving_s is not None
    assert 0 < first.saving_s < _spent_s(session)
    assert {op for op in first.source_ops if "MatMul" in op} == {
        f"n{i}/MatMul" for i in range(_COUNT)
    }


def test_the_same_gemm_in_float16_is_not_blamed_and_is_faster(
    analyzed: Callable[[str], Session],
) -> None:
    half = analyzed("float16")
    assert half.profiles
    assert RULE.id not in [f.rule for f in half.findings], half.findings
    assert _spent_s(half) < _spent_s(analyzed("float32"))
