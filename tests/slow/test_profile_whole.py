"""ResNet-18 from both formats: nearly all kernel time belongs to a known source operator."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.references import PREPARE
from tvmscope.core.options import LoadOptions
from tvmscope.core.prepared import operators
from tvmscope.measure.worker import run_isolated
from tvmscope.stages.options import Options
from tvmscope.workflow.profile import profile

pytestmark = pytest.mark.slow

BACKENDS = ("tvmscope", "onnxruntime", "openvino")


@pytest.fixture(scope="module")
def resnet18(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The prepared folder, whose ONNX file is the second format."""
    folder = tmp_path_factory.mktemp("resnet18")
    options = LoadOptions(offline=True)
    run_isolated(PREPARE, "resnet18", str(folder), options)
    return folder


@pytest.mark.parametrize("form", ["torch", "onnx"])
def test_kernel_time_of_resnet18_is_attributed(form: str, resnet18: Path) -> None:
    model = "resnet18" if form == "torch" else str(resnet18 / "model.onnx")
    backends = (*BACKENDS, "torch") if form == "torch" else BACKENDS
    session = profile(model, Options.of(backends=backends, target="cpu", offline=True))
    assert session.warnings == ()
    assert {p.key.name for p in session.profiles} == set(backends)
    known = set(operators.read(resnet18).names)
    for found in session.profiles:
        named = sum(k.total_s for k in found.kernels if k.source_ops)
        assert named >= 0.95 * found.total_s, found.key
        used = {op for k in found.kernels for op in k.source_ops}
        if form == "torch":
            assert used <= known
        assert len([op for op in used if "conv" in op.lower()]) == 20


def test_the_sum_of_resnet18s_kernels_is_the_run(resnet18: Path) -> None:
    session = profile("resnet18", Options.of(target="cpu", offline=True))
    (found,) = session.profiles
    assert found.host_s is not None
    assert found.total_s + found.host_s == pytest.approx(found.profiled_s, rel=0.01)
    flops = sum(k.flops or 0.0 for k in found.kernels)
    assert 1.0e9 < flops < 3.64e9  # direct convolutions would be 3.63; Winograd's are fewer
