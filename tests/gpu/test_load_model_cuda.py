"""The loader that a CUDA artifact carries, on a real device, where only TVM can be imported."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tvmscope
from support.torch_nets import two_convolutions
from tvmscope.backends import tvm as tvm_backend
from tvmscope.backends.api import LoadRequest
from tvmscope.core.precision import FLOAT16
from tvmscope.cuda.cubins.cubin import sections
from tvmscope.machine import cuda_device

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(cuda_device.find() is None, reason="no CUDA device here"),
]

NET = two_convolutions((32, 64), 5, (1, 3, 32, 32))
EXIT = (0x000FEA0003800000_000000000000794D).to_bytes(16, "little")
"""The instruction of sm_80 to sm_90."""
RUN = """
import sys
for name in ("torch", "tvmscope", "triton"):
    sys.modules[name] = None
sys.path.insert(0, sys.argv[1])
import numpy as np
from load_model import LoadError, Model
try:
    model = Model(sys.argv[1])
    with np.load("inputs.npz") as data:
        for _ in range(4):  # the first runs record the CUDA graph
            outputs = model(**data)
except LoadError as e:
    print(e)
    sys.exit(7)
np.savez("out.npz", **outputs)
"""


def alone(folder: Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    path = [p for p in os.environ.get("PYTHONPATH", "").split(":") if "src" not in Path(p).parts]
    clean["PYTHONPATH"] = ":".join(path)
    command = [sys.executable, "-c", RUN, str(folder)]
    return subprocess.run(
        command, capture_output=True, text=True, cwd=cwd, env=clean, timeout=300, check=False
    )


@pytest.mark.parametrize("graph", [False, True])
def test_bits_are_those_of_the_artifact_in_tvmscope(
    graph: bool, source: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "a"
    tvmscope.compile(str(source), folder, target="cuda", precision="float16", graph=graph)
    assert (folder / "cubins.bin").stat().st_size > 0
    model = tvmscope.load_artifact(folder)
    x = np.random.default_rng(0).standard_normal((1, 3, 32, 32)).astype("float32")
    given = {spec.name: x.astype(spec.dtype) for spec in model.artifact.inputs}
    np.savez(tmp_path / "inputs.npz", **given)
    done = alone(folder, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    wanted = model(**given)
    with np.load(tmp_path / "out.npz") as found:
        for name, value in wanted.items():
            np.testing.assert_array_equal(found[name], value)


def test_kernels_of_another_architecture_are_an_error(source: Path, tmp_path: Path) -> None:
    """Though meta.json is made to say otherwise: the driver refuses, and nothing is returned."""
    device = cuda_device.find()
    assert device is not None
    other = "sm_80" if device.arch != "sm_80" else "sm_90"
    folder, mixed = tmp_path / "here", tmp_path / "mixed"
    tvmscope.compile(str(source), folder, target="cuda", precision="float16")
    tvmscope.compile(str(source), tmp_path / "there", target=f"cuda:{other}", precision="float16")
    done = alone(tmp_path / "there", tmp_path)
    assert (done.returncode, f"built for {other}" in done.stdout) == (7, True), done.stdout
    shutil.copytree(tmp_path / "there", mixed)
    meta = json.loads((mixed / "meta.json").read_text())
    meta["target"]["arch"] = device.arch
    (mixed / "meta.json").write_text(json.dumps(meta))
    specs = {s["name"]: np.zeros(s["shape"], s["dtype"]) for s in meta["inputs"]}
    np.savez(tmp_path / "inputs.npz", **specs)
    done = alone(mixed, tmp_path)
    assert done.returncode == 7, done.stdout + done.stderr
    assert not (tmp_path / "out.npz").exists()


def test_a_kernel_that_does_nothing_is_found(source: Path, tmp_path: Path) -> None:
    """Its first instruction becomes EXIT: launches succeed, and nothing is computed."""
    folder = tmp_path / "session"
    session = tvmscope.analyze(
        str(source), target="cuda", precision="float16", backends=("tvmscope",), duration_s=0.2,
        profile=False, output=folder,
    )  # fmt: skip
    assert {r.status for r in session.results} == {"ok"}
    x = np.random.default_rng(0).standard_normal((1, 3, 32, 32)).astype("float32")
    for graph in ("", "-graph"):
        (artifact,) = (folder / "artifacts").glob(f"tvmscope-fp16{graph}-cuda*")
        idle = shutil.copytree(artifact, tmp_path / f"idle{graph}")
        stop_kernels(idle)
        inputs = json.loads((artifact / "meta.json").read_text())["inputs"]
        given = {spec["name"]: x.astype(spec["dtype"]) for spec in inputs}
        np.savez(tmp_path / "inputs.npz", **given)
        request = LoadRequest(
            folder=str(tmp_path), device="cuda", precision=FLOAT16, threads=1, artifact=str(idle)
        )
        # the whole one first, in a process of its own: its results stay in the memory that both use
        assert alone(artifact, tmp_path).returncode == 0
        (found,) = tvm_backend.load(request).outputs().values()
        with np.load(tmp_path / "out.npz") as whole:
            (wanted,) = whole.values()
        error = np.abs(found.astype(np.float32) - wanted).max() / np.abs(wanted).max()
        assert not error < 0.1


def stop_kernels(artifact: Path) -> None:
    """Make each generated kernel's first instruction EXIT."""
    code = bytearray((artifact / "cubins.bin").read_bytes())
    for kernel in json.loads((artifact / "cubins.json").read_text()):
        part = bytes(code[kernel["offset"] : kernel["offset"] + kernel["size"]])
        (text,) = (s for s in sections(part) if s.name == f".text.{kernel['symbol']}")
        start = kernel["offset"] + text.offset
        code[start : start + 16] = EXIT
    (artifact / "cubins.bin").write_bytes(code)
    meta = json.loads((artifact / "meta.json").read_text())
    meta["generated_digest"] = hashlib.sha256(code).hexdigest()
    (artifact / "meta.json").write_text(json.dumps(meta))


def test_a_broken_kernel_is_an_error(source: Path, tmp_path: Path) -> None:
    folder = tmp_path / "a"
    tvmscope.compile(str(source), folder, target="cuda", precision="float16")
    code = bytearray((folder / "cubins.bin").read_bytes())
    for kernel in json.loads((folder / "cubins.json").read_text()):
        start = kernel["offset"]
        code[start : start + 64] = bytes(64)  # no ELF header: no kernel
    (folder / "cubins.bin").write_bytes(code)
    meta = json.loads((folder / "meta.json").read_text())
    meta["generated_digest"] = hashlib.sha256(code).hexdigest()
    (folder / "meta.json").write_text(json.dumps(meta))
    specs = {s["name"]: np.zeros(s["shape"], s["dtype"]) for s in meta["inputs"]}
    np.savez(tmp_path / "inputs.npz", **specs)
    done = alone(folder, tmp_path)
    assert done.returncode == 7, done.stdout + done.stderr
    assert "CUDA" in done.stdout
