"""Tuning for a machine that is not this one: built here, planned and proven kernel by kernel there.

The farm is on loopback. Its servers run x86-64-v3, which this process is made to believe its own
CPU could not.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import farm_kernels, tiny_tunables
from support.farm_kernels import Farm
from tvmscope.compiler import targets
from tvmscope.core.target import Target
from tvmscope.core.tuning import Candidate
from tvmscope.errors import UsageError
from tvmscope.machine import cpu_features
from tvmscope.stages.options import Options
from tvmscope.tuning.farm.tracker import Device
from tvmscope.tuning.job.setup import misfit
from tvmscope.tuning.job.tune import tune
from tvmscope.tuning.records.database import Database
from tvmscope.tuning.trials.builders import Builders, Job

AVX2 = pytest.mark.skipif("avx2" not in cpu_features.reported(), reason="no AVX2 here")
AARCH64 = 183
NET = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(16, 32, 1)

    def forward(self, x):
        return torch.relu(self.conv(x))

def get_init_inputs():
    return []

def get_inputs():
    return [torch.randn(1, 16, 12, 12)]
"""


@pytest.fixture(scope="module")
def farm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Farm]:
    with farm_kernels.farm(tmp_path_factory.mktemp("farm")) as made:
        made.server()
        yield made


@pytest.fixture
def without_avx2(monkeypatch: pytest.MonkeyPatch) -> None:
    here = cpu_features.reported() - {"avx2"}
    monkeypatch.setattr(cpu_features, "reported", lambda: here)


def options(farm: Farm, folder: Path, **more: object) -> Options:
    return Options.of(
        target="cpu:x86-64-v3",
        tracker=f"127.0.0.1:{farm.port}",
        key="board",
        db=str(folder / "records.jsonl"),
        output=folder / "session",
        metaschedule=False,
        trials=4,
        min_repeat_ms=2.0,
        **more,
    )


@AVX2
@pytest.mark.usefixtures("without_avx2")
@pytest.mark.slow
def test_a_model_that_cannot_run_here_is_tuned_kernel_by_kernel_on_the_farm(
    farm: Farm, tmp_path: Path
) -> None:
    (tmp_path / "net.py").write_text(NET)
    session = tune(str(tmp_path / "net.py"), options(farm, tmp_path))
    assert session.complete
    assert session.results == ()  # the model itself was not run
    (heavy,) = [t for t in session.tuning if t.rule == "conv2d"]
    assert heavy.total_s > 0
    assert heavy.trials > 0
    assert heavy.roof_share is None  # the server's roofs are not known
    trials = list(Database(tmp_path / "records.jsonl").trials())
    searched = [t for t in trials if t.stage == "search"]
    assert len(searched) == 4
    assert {t.status for t in searched} == {"ok"}
    assert {(t.target.arch, t.threads, t.cpu) for t in trials} == {
        ("x86-64-v3", 1, cpu_features.model_name())
    }
    for task in session.tuning:
        if task.chosen is not None:  # on a busy machine nothing may be surely faster
            assert task.interval is not None
            assert task.interval[0] > 1
    assert (tmp_path / "session" / "report.html").is_file()


@pytest.mark.parametrize(
    "target, problem",
    [
        (Target(kind="llvm", arch="x", features=("fma",)), None),
        (Target(kind="llvm", arch="x", features=("avx512f", "fma")), "a CPU lacks avx512f"),
        (Target(kind="llvm", arch="x", triple="aarch64-linux-gnu"), "a CPU is x86_64, not aarch64"),
        (Target(kind="cuda", arch="sm_90"), "a GPU is sm_89"),
        (Target(kind="cuda", arch="sm_89"), None),
    ],
)
def test_a_server_is_asked_whether_it_runs_the_target(target: Target, problem: str | None) -> None:
    device = Device(
        cpu="a CPU",
        threads=1,
        features=("avx2", "fma"),
        triple="x86_64-unknown-linux-gnu",
        gpu="a GPU",
        gpu_arch="sm_89",
    )
    assert misfit(device, target) == problem


@pytest.mark.slow  # long
def test_a_farm_without_a_gpu_is_refused_for_one(farm: Farm, tmp_path: Path) -> None:
    from tvmscope.machine import cuda_device

    if cuda_device.find():
        pytest.skip("a GPU is here")
    (tmp_path / "net.py").write_text(NET)
    asked = Options.of(
        target="cuda:sm_90",
        tracker=f"127.0.0.1:{farm.port}",
        key="board",
        db=str(tmp_path / "records.jsonl"),
        output=tmp_path / "session",
    )
    with pytest.raises(UsageError, match=r"key board cannot run cuda:sm_90: .* has no GPU"):
        tune(str(tmp_path / "net.py"), asked)


def test_a_candidate_for_another_machine_is_linked_for_it(function: Path, tmp_path: Path) -> None:
    board = targets.resolve("arm64:cortex-a72")
    job = Job(function=function, candidate=Candidate(), target=board, output=tmp_path / "kernel.so")
    with Builders(1, tunables=tiny_tunables.TUNABLES) as builders:
        built = builders.submit(job).result()
    assert built.failure is None
    data = job.output.read_bytes()
    assert struct.unpack_from("<H", data, 18)[0] == AARCH64
