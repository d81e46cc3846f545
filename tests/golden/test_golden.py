"""Rendered output beside a stored copy; `UPDATE_GOLDEN=1 pytest tests/golden` writes it anew."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from support import samples
from tvmscope.report.renderers import renderers

FOLDER = Path(__file__).parent
SHOWN = ("complete", "wrong_result", "several_targets", "hostile_names")


def check(file: Path, text: str) -> None:
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", SHOWN)
@pytest.mark.parametrize("form", ["console", "markdown"])
def test_session(name: str, form: str) -> None:
    renderer = renderers()[form]
    check(FOLDER / f"{name}{renderer.suffix}", renderer.render([samples.ALL[name]()]))


@pytest.mark.parametrize("form", ["console", "markdown"])
def test_several_models(form: str) -> None:
    renderer = renderers()[form]
    sessions = [samples.complete(), samples.several_targets(), samples.failed_model()]
    check(FOLDER / f"several_models{renderer.suffix}", renderer.render(sessions))
