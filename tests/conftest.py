"""Being here puts this folder on the path, so that tests can import `fakes`."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _own_data_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What tests try is not what the user of this machine has tried."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
