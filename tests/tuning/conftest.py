"""A tunable matmul in a file, and a workshop with real builders and a real runner for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import tiny_tunables
from tvmscope.compiler import targets
from tvmscope.core.target import Target
from tvmscope.core.tuning import TuningTask
from tvmscope.measure.worker import run_isolated
from tvmscope.tuning.builders import Builders
from tvmscope.tuning.runners import LocalRunner
from tvmscope.tuning.workshop import Setting, Workshop

TIMEOUT_S = 4.0


@pytest.fixture(scope="session")
def target() -> Target:
    return targets.host_target(cores=2)


@pytest.fixture(scope="session")
def function(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("function")
    file: Path = run_isolated(f"{tiny_tunables.NAME}:write_function", folder)
    return file


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
    builders = Builders(2, tunables=tiny_tunables.NAME)
    runner = LocalRunner(threads=2, timeout_s=TIMEOUT_S)
    with Workshop(builders, runner, tmp_path_factory.mktemp("built"), setting) as made:
        yield made
