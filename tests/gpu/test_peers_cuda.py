"""The other runtimes' rows on a real device: each in every mode, right, and multiplied as said."""

from __future__ import annotations

from pathlib import Path

import pytest

import tvmscope
from support.torch_nets import two_convolutions
from tvmscope.core.session import Session
from tvmscope.machine import cuda_device

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(cuda_device.find() is None, reason="no CUDA device here"),
]

NET = two_convolutions((64, 64), 10, (2, 3, 56, 56))
MODES = {
    "torch": (False, True),
    "torch-compile": (False, True),
    "torch-compile-max-autotune": (True,),
}


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Session:
    folder: Path = tmp_path_factory.mktemp("peers")
    (folder / "net.py").write_text(NET)
    return tvmscope.analyze(
        str(folder / "net.py"),
        target="cuda",
        precision="float32,tf32,float16",
        backends=("tvmscope", *MODES, "onnxruntime"),
        duration_s=0.3,
        profile=False,
        output=folder / "session",
    )


def test_every_mode_of_every_peer_is_right(session: Session) -> None:
    rows = {(r.task.variant.backend, str(r.key.precision), r.task.variant.graph): r
            for r in session.results}  # fmt: skip
    for precision in ("float32", "float32/tf32", "float16"):
        for backend, graphs in MODES.items():
            for graph in graphs:
                row = rows[backend, precision, graph]
                assert row.status == "ok", (row.key.name, row.reason)
        for graph in (False, True):
            assert rows["tvmscope", precision, graph].status == "ok"
            other = rows["onnxruntime", precision, graph]
            assert other.status in ("ok", "unavailable"), other.reason


def test_tf32_has_its_own_error_for_us_and_for_them(session: Session) -> None:
    """Ten bits of mantissa are seen in the error of convolutions, and missing in strict rows."""
    for backend in ("tvmscope", "torch"):
        errors = {
            str(r.key.precision): r.accuracy.error
            for r in session.results
            if r.task.variant.backend == backend and r.accuracy and not r.task.variant.graph
        }
        assert errors["float32"] is not None
        assert errors["float32"] < 2e-5
        assert errors["float32/tf32"] is not None
        assert 2e-5 < errors["float32/tf32"] < 1e-2


def test_every_peer_has_a_profile_by_the_devices_records(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(NET)
    session = tvmscope.analyze(
        str(tmp_path / "net.py"), target="cuda", precision="float16",
        backends=("tvmscope", *MODES, "onnxruntime"), duration_s=0.3,
        output=tmp_path / "session",
    )  # fmt: skip
    profiled = {p.key: p for p in session.profiles}
    for row in session.results:
        if row.status == "unavailable":
            continue
        profile = profiled[row.key]
        assert profile.device is not None, row.key.name
        assert profile.device.launches >= 2
        assert any(k.resources for k in profile.kernels), row.key.name
