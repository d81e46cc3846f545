"""CUDA artifacts on a GPU that runs nothing: what is loaded, allocated, captured and launched."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from support import null_gpu
from support.alone import ASK, RUN
from support.null_gpu import Launch, NullGpu
from support.references import PREPARE
from tvmscope.compiler import build, targets
from tvmscope.core.model import Prepared
from tvmscope.core.options import CompileOptions, LoadOptions
from tvmscope.core.precision import FLOAT16
from tvmscope.core.target import Target
from tvmscope.measure.worker import run_isolated

pytest.importorskip("triton", reason="CUDA kernels are generated where Triton is installed")
pytestmark = pytest.mark.skipif(null_gpu.missing() is not None, reason=str(null_gpu.missing()))

TWO_BY_TWO = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Conv2d(24, 48, 3, padding=1)
        self.left, self.right = torch.nn.Conv2d(48, 16, 1), torch.nn.Conv2d(48, 16, 3, padding=1)
        self.deep = torch.nn.Conv2d(32, 512, 7)
        self.query = torch.nn.Linear(512, 64)
        self.head = torch.nn.Linear(64, 10)

    def forward(self, x, scale):
        y = torch.relu(self.first(x))
        both = torch.cat([self.left(y), torch.relu(self.right(y))], 1)
        deep = torch.relu(self.deep(both)).mean((2, 3))
        return torch.softmax(self.query(deep) * torch.softmax(scale, -1), -1), self.head(
            torch.relu(self.query(deep)))

def get_init_inputs():
    return []

def get_inputs():
    return [torch.randn(1, 24, 14, 14), torch.randn(1, 64)]
"""
"""Two inputs, one of which is read late; two outputs; a buffer that two kernels write into; a sum
of 1,568 terms, which is split over blocks that share a workspace."""

PROFILE = """
import json, sys
import numpy as np
from pathlib import Path
from tvmscope.backends.profilers.tvm import VmProfiler
from tvmscope.runtime.loaded_artifact import load_callable
loaded = load_callable(Path(sys.argv[1]))
inputs = {s.name: np.zeros(s.shape, s.dtype) for s in loaded.artifact.inputs}
profiler = VmProfiler(loaded, loaded.place(inputs))
for _ in range(3):
    profiler.run()
print(json.dumps([[(s.kernel, s.seconds) for s in trace.spans] for trace in profiler.traces()]))
"""
MADE_UP_S = 5e-6
"""What each launch takes by the clock of the GPU that runs nothing."""


@pytest.fixture(scope="module")
def gpu(tmp_path_factory: pytest.TempPathFactory) -> NullGpu:
    return NullGpu(tmp_path_factory.mktemp("null-gpu"))


@pytest.fixture(scope="module", params=["one and one", "two and two"])
def artifact(
    request: pytest.FixtureRequest, conv_net: Prepared, host: Target,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:  # fmt: skip
    prepared = conv_net
    if request.param == "two and two":
        source = tmp_path_factory.mktemp("net") / "net.py"
        source.write_text(TWO_BY_TWO)
        ready = tmp_path_factory.mktemp("prepared")
        prepared = Prepared(ready, run_isolated(PREPARE, str(source), str(ready), LoadOptions()))
    folder = tmp_path_factory.mktemp("artifact") / "a"
    options = CompileOptions(precision=FLOAT16, graph=True)
    build.build(prepared, folder, targets.resolve("cuda:sm_90"), host, options)
    return folder


def run(gpu: NullGpu, artifact: Path, before: str = "", **more: str) -> tuple[int, str]:
    """The artifact by the loader that it carries, four times."""
    specs = json.loads((artifact / "meta.json").read_text())["inputs"]
    np.savez(
        gpu.folder / "inputs.npz", **{s["name"]: np.zeros(s["shape"], s["dtype"]) for s in specs}
    )
    return _python(gpu, RUN.format(before=before), artifact, **more)


def _python(gpu: NullGpu, code: str, artifact: Path, **more: str) -> tuple[int, str]:
    command = [sys.executable, "-c", code, str(artifact)]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=gpu.folder, env=gpu.environment | more,
        timeout=120, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout + (done.stderr if done.returncode else "")


def table(artifact: Path) -> dict[str, dict[str, object]]:
    """The generated kernels by the names of their functions."""
    return {entry["symbol"]: entry for entry in json.loads((artifact / "cubins.json").read_text())}


def test_a_run_is_one_graph_between_inputs_and_outputs(gpu: NullGpu, artifact: Path) -> None:
    assert run(gpu, artifact) == (0, "")
    log = gpu.log()
    assert log.refused == []
    meta = json.loads((artifact / "meta.json").read_text())
    launches = log.last_run()
    inside = [launch.in_graph for launch in launches]
    first, last = inside.index(True), len(inside) - inside[::-1].index(True)
    assert all(inside[first:last])
    assert first <= len(meta["inputs"])
    assert len(inside) - last <= len(meta["outputs"])
    assert log.count("graph") == 3  # of four runs, the first records it
    kernels = [call["kernel"] for call in meta["kernels"] if "reshape" not in call["kernel"]]
    assert len(launches) == len(kernels)


def test_kernels_of_the_graph_are_launched_dependently(gpu: NullGpu, artifact: Path) -> None:
    assert run(gpu, artifact) == (0, "")
    generated = table(artifact)
    nodes = [launch for launch in gpu.log().last_run() if launch.in_graph]
    assert nodes
    assert {n.dependent for n in nodes if n.kernel in generated} == {True}


def test_later_runs_allocate_nothing_but_inputs_and_outputs(gpu: NullGpu, artifact: Path) -> None:
    assert run(gpu, artifact) == (0, "")
    meta = json.loads((artifact / "meta.json").read_text())
    third, fourth = gpu.log().runs()[-2:]
    assert third.count("malloc") == fourth.count("malloc")
    assert fourth.count("malloc") <= len(meta["inputs"]) + len(meta["outputs"])


def test_a_kernels_tensors_lie_in_memory_that_holds_them(gpu: NullGpu, artifact: Path) -> None:
    """All that a generated kernel is given, its workspace and counters too."""
    assert run(gpu, artifact) == (0, "")
    generated = table(artifact)
    launches = [launch for launch in gpu.log().launches if launch.kernel in generated]
    assert launches
    for launch in launches:
        assert launch.left is not None
        pointers, hidden = (int(str(generated[launch.kernel][k])) for k in _POINTERS)
        assert all(left > 0 for left in launch.left[:pointers])
        assert launch.left[pointers:] == (0,) * hidden


_POINTERS = ("pointers", "hidden_pointers")


def test_events_of_the_graph_time_each_of_its_kernels(gpu: NullGpu, artifact: Path) -> None:
    """The profiler of a CUDA graph on machines without PyTorch."""
    path = {"PYTHONPATH": os.pathsep.join(sys.path)}
    code, said = _python(gpu, PROFILE, artifact, **path)
    assert code == 0, said
    assert gpu.log().refused == []
    meta = json.loads((artifact / "meta.json").read_text())
    kernels = [call["kernel"] for call in meta["kernels"] if "reshape" not in call["kernel"]]
    for spans in json.loads(said):
        assert [name for name, _ in spans] == kernels
        np.testing.assert_allclose([seconds for _, seconds in spans], MADE_UP_S, rtol=1e-3)


def test_too_little_memory_is_an_error(gpu: NullGpu, artifact: Path) -> None:
    code, said = run(gpu, artifact, NULL_GPU_BYTES=str(16 << 10))
    assert (code, "the GPU has too little free memory (0.0 of" in said) == (7, True), said


@pytest.mark.parametrize(("index", "value", "words"), [
    (-1, 1 << 20, "a kernel needs more shared memory than this GPU has"),
    (-5, 4096, "a CUDA kernel failed; its result is lost"),
])  # fmt: skip
def test_a_launch_that_fails_is_an_error(
    index: int, value: int, words: str, gpu: NullGpu, artifact: Path
) -> None:
    """Launches that ask for another number than the program's: of shared bytes, or of threads."""
    code, said = run(gpu, artifact, ASK.format(index=index, value=value))
    assert (code, words in said) == (7, True), said


def test_a_gpu_that_computes_nothing_is_found(gpu: NullGpu, tmp_path: Path, net: Path) -> None:
    """No row is right whose kernels did not run."""
    output = tmp_path / "session"
    command = [
        sys.executable, "-m", "tvmscope", "bench", str(net), "--target=cuda", "--graph",
        "--precision=float16", "--backends=tvmscope", "--iterations=3", "--warmup=1",
        f"--output={output}",
    ]  # fmt: skip
    env = gpu.environment | {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        command, capture_output=True, text=True, env=env, timeout=300, check=False
    )
    assert done.returncode == 3, done.stdout + done.stderr
    session = json.loads((output / "session.json").read_text())
    assert [result["status"] for result in session["results"]] == ["wrong"]
    assert session["comparisons"] == []


def test_a_launch_reads_as_what_it_was() -> None:
    line = "node conv grid 1 1 1 block 64 1 1 shared 0 dependent 1 captured 0 pointers 512 0"
    log = null_gpu.Log((line, "refused a launch"))
    assert log.launches == [
        Launch(kernel="conv", in_graph=True, captured=False, dependent=True, left=(512, 0))
    ]
    assert log.refused == ["refused a launch"]
