"""The guides' catalogues: no text of a translated guide is missing, none is stale."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_guides_are_translated() -> None:
    pytest.importorskip("furo")
    check = [sys.executable, "scripts/site.py", "--check"]
    told = subprocess.run(check, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert told.returncode == 0, told.stdout + told.stderr[-2000:]
