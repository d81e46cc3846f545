"""Being here puts this folder on the path, so that tests can import `fakes`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

os.environ["TVMSCOPE_COMPILE_CACHE"] = "off"  # a test of the compiler must not find its result

from support.command import TORCH_NET
from tvmscope.machine.cpu_features import usable_cores
from tvmscope.measure.fork_server import ForkServer
from tvmscope.stages.preload import fork_server

FOLDERS = ("tuning", "compiler", "cli", "models", "browser")
"""Those whose files take long, in the order in which they run; all others come after them."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files first, so that short ones at the end even out what two processes have to do."""

    def place(item: pytest.Item) -> int:
        folder = item.path.parent.name
        return FOLDERS.index(folder) if folder in FOLDERS else len(FOLDERS)

    items.sort(key=place)


@pytest.fixture(autouse=True)
def _own_data_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What tests try is not what the user of this machine has tried."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


@pytest.fixture(scope="session")
def net(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small convolution network as a file."""
    file = tmp_path_factory.mktemp("net") / "net.py"
    file.write_text(TORCH_NET)
    return file


@pytest.fixture(scope="session")
def worker_server() -> Iterator[ForkServer]:
    """Forks workers: it has imported TVM and PyTorch already."""
    with fork_server(usable_cores()) as server:
        yield server
