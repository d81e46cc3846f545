"""Real profiles of a small network, by every backend that can make one."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import pytest

from support.rows import key
from tvmscope.backends import all_backends
from tvmscope.backends.api import LoadRequest
from tvmscope.compiler.build import build
from tvmscope.core.model import Prepared
from tvmscope.core.options import CompileOptions
from tvmscope.core.precision import FLOAT32
from tvmscope.core.prepared import operators
from tvmscope.core.profile import Profile
from tvmscope.core.target import Target
from tvmscope.errors import RunError
from tvmscope.profiling.kernels import profile_row


def _profile(backend: str, folder: Path, artifact: Path | None = None) -> Profile:
    manifest = all_backends()[0][backend]
    return profile_row(
        key(backend),
        manifest.load,
        LoadRequest(
            folder=str(folder),
            device="cpu",
            precision=FLOAT32,
            threads=2,
            artifact=None if artifact is None else str(artifact),
        ),
        manifest.env(2),
        timeout_s=120,
        budget_s=0.3,
    )


@pytest.fixture(scope="module")
def artifacts(
    conv_net: Prepared,
    conv_net_onnx: Prepared,
    host: Target,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, Path]:
    made = {}
    for ready in (conv_net, conv_net_onnx):
        folder = tmp_path_factory.mktemp("artifact") / ready.model.format
        build(ready, folder, host, host, CompileOptions(threads=2))
        made[ready.model.format] = folder
    return made


def test_an_artifact_alone_has_a_profile_that_adds_up(
    conv_net: Prepared, artifacts: dict[str, Path], tmp_path: Path
) -> None:
    shutil.copy(conv_net.inputs_path, tmp_path)  # nothing of the model but its inputs
    found = _profile("tvmscope", tmp_path, artifacts["torch"])
    assert found.how == "TVM's VM instrument"
    assert found.host_s is not None
    assert found.total_s + found.host_s == pytest.approx(found.profiled_s, rel=1e-6)
    assert all(kernel.source_ops for kernel in found.kernels)
    convolutions = [k for k in found.kernels if "conv" in k.name]
    assert len(convolutions) == 3  # one kernel is called from two blocks: two entries
    assert all(k.flops and k.bytes and k.kind == "compute" for k in convolutions)


@pytest.mark.parametrize("form", ["torch", "onnx"])
@pytest.mark.parametrize("backend", ["tvmscope", "onnxruntime", "openvino", "torch"])
def test_backends_name_the_same_source_operators(
    backend: str, form: str, conv_net: Prepared, conv_net_onnx: Prepared, artifacts: dict[str, Path]
) -> None:
    if backend == "torch" and form == "onnx":
        pytest.skip("PyTorch does not run ONNX models")
    if importlib.util.find_spec({"tvmscope": "tvm"}.get(backend, backend)) is None:
        pytest.skip(f"{backend} is not installed")
    ready = conv_net if form == "torch" else conv_net_onnx
    found = _profile(backend, ready.folder, artifacts[form])
    known = operators.read(ready.folder).names
    named = {op for kernel in found.kernels for op in kernel.source_ops}
    assert named <= set(known)
    attributed = sum(k.total_s for k in found.kernels if k.source_ops or k.kind == "layout")
    assert attributed >= 0.95 * found.total_s
    convolutions = [op for op in known if "conv" in op.lower()]
    assert len(convolutions) == 3
    # each is one kernel's (beside one that changes its layout), and no kernel computes two of them
    computing = [kernel for kernel in found.kernels if kernel.kind != "layout"]
    for op in convolutions:
        assert sum(op in kernel.source_ops for kernel in computing) == 1
    assert not any(len(set(k.source_ops) & set(convolutions)) > 1 for k in found.kernels)


def test_a_compiled_vm_is_refused_with_what_to_do(
    conv_net: Prepared, host: Target, tmp_path: Path
) -> None:
    folder = tmp_path / "artifact"
    build(conv_net, folder, host, host, CompileOptions(threads=2, exec_mode="compiled"))
    with pytest.raises(RunError, match="--exec-mode bytecode"):
        _profile("tvmscope", conv_net.folder, folder)
