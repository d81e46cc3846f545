"""A test module's `NET` as a file; failures are shown at once: time on a GPU machine may end before
pytest's own summary."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed:
        sys.stderr.write(f"\n{report.nodeid} failed in {report.when}:\n{report.longreprtext}\n")
        sys.stderr.flush()


@pytest.fixture(scope="module")
def source(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("model") / "net.py"
    file.write_text(request.module.NET)
    return file
