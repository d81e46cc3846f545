"""The loader that a CUDA artifact carries, on a real device, where only TVM can be imported."""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import tvmscope
from support.alone import ASK, RUN
from support.torch_nets import two_convolutions
from tvmscope.backends import tvm as tvm_backend
from tvmscope.backends.api import LoadRequest
from tvmscope.core.precision import FLOAT16
from tvmscope.cuda.cubins.cubin import sections
from tvmscope.errors import UsageError
from tvmscope.machine import cuda_device, gpu_state
from tvmscope.runtime import load_model

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(cuda_device.find() is None, reason="no CUDA device here"),
]

NET = two_convolutions((32, 64), 5, (1, 3, 32, 32))
EXIT = (0x000FEA0003800000_000000000000794D).to_bytes(16, "little")
"""The instruction of sm_80 to sm_90."""
RUN_HERE = """
import sys
import numpy as np
import tvmscope
from tvmscope.errors import TvmscopeError
from tvmscope.runtime import load_model
{before}
try:
    model = tvmscope.load_artifact(sys.argv[1])
    with np.load("inputs.npz") as data:
        for _ in range(4):
            outputs = model(**data)
except TvmscopeError as e:
    print(e)
    sys.exit(7)
np.savez("out.npz", **outputs)
"""
"""What `support.alone.RUN` does, with tvmscope."""
LEFT_BYTES = 32 << 20


def alone(folder: Path, cwd: Path, before: str = "") -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    path = [p for p in os.environ.get("PYTHONPATH", "").split(":") if "src" not in Path(p).parts]
    clean["PYTHONPATH"] = ":".join(path)
    command = [sys.executable, "-c", RUN.format(before=before), str(folder)]
    return subprocess.run(
        command, capture_output=True, text=True, cwd=cwd, env=clean, timeout=300, check=False
    )


def in_tvmscope(folder: Path, cwd: Path, before: str = "") -> subprocess.CompletedProcess[str]:
    """The same in tvmscope, in a process of its own."""
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", RUN_HERE.format(before=before), str(folder)]
    return subprocess.run(
        command, capture_output=True, text=True, cwd=cwd, env=env, timeout=300, check=False
    )


@pytest.fixture(scope="module")
def plain(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An artifact of generated kernels, without a graph and without NVIDIA's libraries."""
    folder = tmp_path_factory.mktemp("plain") / "a"
    tvmscope.compile(str(source), folder, target="cuda", precision="float16", library=False)
    assert (folder / "cubins.bin").stat().st_size > 0
    return folder


@pytest.fixture
def zeros(plain: Path, tmp_path: Path) -> dict[str, np.ndarray]:
    """Its inputs, which also lie in the test's folder."""
    inputs = json.loads((plain / "meta.json").read_text())["inputs"]
    made = {s["name"]: np.zeros(s["shape"], s["dtype"]) for s in inputs}
    np.savez(tmp_path / "inputs.npz", **made)
    return made


@contextmanager
def full_memory() -> Iterator[None]:
    """Take the GPU's memory, all but `LEFT_BYTES`, and give it back."""
    cuda = ctypes.CDLL("libcuda.so.1")
    load_model.use_device(0)
    blocks: list[ctypes.c_uint64] = []
    size = 1 << 40
    try:
        while (wanted := min(size, free_bytes(cuda) - LEFT_BYTES)) >= 1 << 20:
            block = ctypes.c_uint64()
            if cuda.cuMemAlloc_v2(ctypes.byref(block), ctypes.c_size_t(wanted)):
                size = wanted // 2  # it is not in one piece
            else:
                blocks.append(block)
        assert free_bytes(cuda) < 2 * LEFT_BYTES
        yield
    finally:
        for block in blocks:
            cuda.cuMemFree_v2(block)


def free_bytes(cuda: ctypes.CDLL) -> int:
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    assert cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
    return free.value


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


@pytest.mark.usefixtures("zeros")
@pytest.mark.parametrize("run", [alone, in_tvmscope])
def test_too_little_memory_is_an_error(
    run: Callable[..., subprocess.CompletedProcess[str]], plain: Path, tmp_path: Path
) -> None:
    with full_memory():
        done = run(plain, tmp_path)
    assert done.returncode == 7, done.stdout + done.stderr
    assert "the GPU has too little free memory" in done.stdout
    assert "compile the model again" not in done.stdout
    assert not (tmp_path / "out.npz").exists()
    assert run(plain, tmp_path).returncode == 0  # it was only the memory


@pytest.mark.usefixtures("zeros")
@pytest.mark.parametrize(
    ("index", "value", "words"),
    [
        (-1, 1 << 20, "a kernel needs more shared memory than this GPU has"),
        (-len(load_model._TAGS), 4096, "a CUDA kernel failed; its result is lost"),
    ],
)
def test_a_launch_that_fails_is_an_error(
    index: int, value: int, words: str, plain: Path, tmp_path: Path
) -> None:
    before = ASK.format(index=index, value=value)
    for run in (alone, in_tvmscope):
        done = run(plain, tmp_path, before)
        assert done.returncode == 7, done.stdout + done.stderr
        assert words in done.stdout
    assert not (tmp_path / "out.npz").exists()


@pytest.mark.skipif(len(cuda_device.find_all()) < 2, reason="this machine has one GPU")
def test_another_gpu_gives_the_same_bits(plain: Path, zeros: dict[str, np.ndarray]) -> None:
    first = tvmscope.load_artifact(plain)(**zeros)
    second = tvmscope.load_artifact(plain, device="cuda:1")(**zeros)
    for name, value in first.items():
        np.testing.assert_array_equal(second[name], value)


def test_the_first_gpu_by_its_number_is_measured(source: Path, tmp_path: Path) -> None:
    session = tvmscope.bench(
        str(source), device="cuda:0", precision="float16", backends=("tvmscope", "torch"),
        duration_s=0.2, output=tmp_path / "session",
    )  # fmt: skip
    device = cuda_device.find(0)
    assert device is not None
    assert session.environment.gpu == device.name
    assert {r.status for r in session.results} <= {"ok", "unavailable"}
    assert any(r.status == "ok" for r in session.results)
    if gpu_state.connect(device.pci_bus) is not None:  # NVML may be missing in a container
        assert any(r.gpu and r.gpu.sm_mhz for r in session.results)
    with pytest.raises(UsageError, match="there is no such GPU here"):
        tvmscope.bench(str(source), device="cuda:99")
