"""A tunable matmul in a file and a workshop for it; a small network, and a record about it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support import onnx_nets, tiny_tunables
from support.references import EXTRACT, PREPARE
from tvmscope.compiler import targets
from tvmscope.core.model import Prepared
from tvmscope.core.options import CompileOptions, LoadOptions
from tvmscope.core.target import Target
from tvmscope.core.tuning import Trial, TuningTask
from tvmscope.measure.confinement import Confinement, confined
from tvmscope.measure.fork_server import ForkServer
from tvmscope.measure.remote import here
from tvmscope.measure.worker import run_isolated
from tvmscope.tuning.records import lookup as records
from tvmscope.tuning.records.database import Database
from tvmscope.tuning.trials.builders import Builders
from tvmscope.tuning.trials.runners import LocalRunner
from tvmscope.tuning.trials.workshop import Setting, Workshop

TIMEOUT_S = 4.0


@pytest.fixture(scope="module", autouse=True)
def _forked_workers(worker_server: ForkServer) -> Iterator[None]:
    """Workers skip the imports, which are most of what a small network costs."""
    with confined(Confinement(server=worker_server)):
        yield


@pytest.fixture(scope="session")
def net(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small convolution network; an ONNX file, whose workers start without torch."""
    return onnx_nets.classifier(tmp_path_factory.mktemp("net") / "net.onnx")


@pytest.fixture(scope="session")
def target() -> Target:
    return targets.host_target(cores=2)


@pytest.fixture(scope="session")
def function(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("function")
    return run_isolated(here(tiny_tunables.write_function), folder)


@pytest.fixture(scope="session")
def task(function: Path) -> TuningTask:
    return tiny_tunables.make_task(function)


@pytest.fixture(scope="session")
def setting(target: Target) -> Setting:
    return Setting(
        target=target,
        threads=2,
        cpu="a CPU",
        tvm="1",
        repeat=2,
        min_repeat_ms=1.0,
        timeout_s=TIMEOUT_S,
    )


@pytest.fixture(scope="module")
def workshop(setting: Setting, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workshop]:
    builders = Builders(2, tunables=tiny_tunables.TUNABLES)
    runner = LocalRunner(threads=2, timeout_s=TIMEOUT_S)
    with Workshop(builders, runner, tmp_path_factory.mktemp("built"), setting) as made:
        yield made


@pytest.fixture(scope="session")
def database(net: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Records that say: another candidate of the convolution takes half of the time."""
    folder = tmp_path_factory.mktemp("records")
    target = targets.resolve("cpu", cores=2)
    ready = folder / "ready"
    ready.mkdir()
    model = run_isolated(PREPARE, str(net), str(ready), LoadOptions())
    tasks = run_isolated(
        EXTRACT,
        Prepared(ready, model),
        target,
        CompileOptions(),
        folder / "functions",
    )
    (task,) = [t for t in tasks if t.rule == "conv2d"]
    host = records.host(target, 2)
    trial = Trial(
        workload=task.key,
        candidate=task.candidates[1],
        target=target,
        threads=2,
        status="ok",
        seconds=(1e-6,),
        baseline_s=(2e-6,),
        stage="validated",
        cpu=host.cpu,
        tvm=host.tvm,
        date="2026-11-15T10:00:00+00:00",
    )
    Database(folder / "records.jsonl").append(trial)
    return folder / "records.jsonl"
