"""A real Chromium, Debian's by its path; without one these tests are skipped with the reason."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")


def _missing() -> str | None:
    if not any(shutil.which(name) for name in NAMES):
        return "no Chromium here: apt-get install chromium"
    try:
        import playwright.sync_api  # noqa: F401  # only whether it is there
    except ImportError:
        return "no Playwright here: pip install 'tvmscope[dev]'"
    return None


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """The browser, started once."""
    if reason := _missing():
        pytest.skip(reason)
    from playwright.sync_api import sync_playwright

    path = next(found for name in NAMES if (found := shutil.which(name)))
    # Chromium's sandbox refuses to run as root, which is what containers are.
    flags = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=flags)
        yield browser
        browser.close()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say why nothing was opened: a skip that nobody sees looks like a pass."""
    if reason := _missing():
        terminalreporter.write_line(f"browser tests skipped: {reason}")
