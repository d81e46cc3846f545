"""A test module's `NET` as a file."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def source(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("model") / "net.py"
    file.write_text(request.module.NET)
    return file
