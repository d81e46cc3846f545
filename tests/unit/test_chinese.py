"""Simplified Chinese: every text of the lessons has a translation that fits, and is shown."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from tvmscope import messages
from tvmscope.cli.main import main
from tvmscope.learn import catalog, page
from tvmscope.messages import msg, msgn, render

ROOT = Path(__file__).parents[2]
PO = ROOT / "src" / "tvmscope" / "locale" / "zh" / "LC_MESSAGES" / "tvmscope.po"
pytestmark = pytest.mark.skipif(not (ROOT / "scripts").is_dir(), reason="needs a checkout")


@pytest.fixture(scope="module")
def catalogues() -> Iterator[object]:
    sys.path.insert(0, str(ROOT / "scripts"))
    import catalogues

    yield catalogues
    sys.path.remove(str(ROOT / "scripts"))


@pytest.fixture
def _chinese(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, catalogues) -> Iterator[None]:
    catalogues.compile_to(PO, tmp_path / "zh" / "LC_MESSAGES" / "tvmscope.mo")
    monkeypatch.setattr(messages, "LOCALE_FOLDER", tmp_path)
    messages.catalogue.cache_clear()
    yield
    messages.use_language(None)
    messages.catalogue.cache_clear()


def _fields(text: str) -> set[str]:
    return set(re.findall(r"\{\w+(?::[^}]*)?\}", text))


def test_no_translation_is_missing_or_stale(catalogues) -> None:
    wanted = {m.id for m in catalogues.texts() if m.id}
    translated = {m.id: m.string for m in catalogues.read(PO) if m.id}
    assert wanted - translated.keys() == set()
    assert translated.keys() - wanted == set()
    empty = [
        i for i, text in translated.items() if not (text if isinstance(text, str) else text[0])
    ]
    assert empty == []


def test_translations_have_the_same_fields(catalogues) -> None:
    for m in catalogues.read(PO):
        if not m.id:
            continue
        ids = m.id if isinstance(m.id, tuple) else (m.id,)
        found = m.string if isinstance(m.string, tuple) else (m.string,)
        assert _fields(found[0]) == set().union(*map(_fields, ids)), m.id


@pytest.mark.usefixtures("_chinese")
def test_lessons_are_told_in_chinese() -> None:
    messages.use_language("zh")
    stream = StringIO()
    console = Console(file=stream, width=60, color_system=None)
    for lesson in catalog.lessons().values():
        for part in (*page.opening(lesson), *page.question(lesson)):
            console.print(part)
    text = stream.getvalue()
    assert "split：一层循环切成两层" in text
    assert "练习" in text
    assert "Exercise" not in text


@pytest.mark.usefixtures("_chinese")
def test_reasons_are_put_into_chinese_when_they_are_shown() -> None:
    made = msg("Only {now} of {old} threads have work.", now=1, old=2)
    assert made == "Only 1 of 2 threads have work."
    assert render(made, "zh") == "2 个线程中只有 1 个有活干。"
    several = msgn("of {n} core's roof", "of {n} cores' roof", count=2, n=2)
    assert render(several, "zh") == "占 2 核上限"


@pytest.mark.usefixtures("_chinese")
@pytest.mark.parametrize("words", [["learn", "--lang", "zh"], ["--lang=zh", "learn"]])
def test_the_language_is_chosen_anywhere(words: list[str], capsys) -> None:
    assert main(words) == 0
    assert "什么是调度" in capsys.readouterr().out


@pytest.mark.usefixtures("_chinese")
def test_an_unknown_language_is_refused(capsys) -> None:
    assert main(["learn", "--lang", "tlh"]) == 2
    assert "--lang takes one of en, zh" in capsys.readouterr().err
