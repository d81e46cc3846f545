"""A lesson as a page and as a notebook: both say what was measured, and the notebook runs."""

from __future__ import annotations

import threading
from html import unescape
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from tvmscope.compiler.targets import host_target
from tvmscope.core.options import MeasureOptions
from tvmscope.learn import catalog
from tvmscope.learn.facts import LessonRun
from tvmscope.learn.pages import server
from tvmscope.learn.pages.document import blocks
from tvmscope.learn.pages.markdown import to_markdown
from tvmscope.learn.pages.notebook import to_notebook
from tvmscope.learn.pages.web import to_html
from tvmscope.learn.run import run
from tvmscope.learn.setting import Setting
from tvmscope.stages.places import cache_folder


@pytest.fixture(scope="module")
def measured() -> LessonRun:
    lesson = catalog.find("split")
    measure = MeasureOptions(duration_s=0.05, min_rounds=3)
    target = host_target(cache=cache_folder())
    return run(lesson, Setting(target=target, size=32, measure=measure, counters=False))


def test_a_page_holds_the_steps_their_times_and_the_date(measured: LessonRun) -> None:
    lesson = catalog.find("split")
    page = to_html(blocks(measured, lesson, "2026-11-16"))
    text = unescape(page)
    assert '<html lang="en">' in page
    assert "Measured on 2026-11-16" in text
    for step in measured.steps:
        assert str(step.title) in text
    assert 'sch.split(j, factors=[None, p["factor"]])' in text
    assert page.count("<svg") == 1
    assert "<?xml" not in page
    assert "http" not in page.replace("http://www.w3.org", "").replace("http-equiv", "").replace(
        "https://matplotlib.org", ""
    ).replace("http://purl.org", "").replace("http://creativecommons.org", "")


def test_markdown_has_its_figure_beside_it(measured: LessonRun) -> None:
    text, files = to_markdown(blocks(measured, catalog.find("split"), "2026-11-16"), "split")
    assert list(files) == ["split-1.svg"]
    assert "](split-1.svg)" in text
    assert text.startswith("# split: one loop becomes two\n")
    assert "```python" in text


@pytest.mark.parametrize("name", catalog.lessons())
def test_every_lesson_is_a_valid_notebook(name: str) -> None:
    nbformat = pytest.importorskip("nbformat")
    lesson = catalog.find(name)
    book = nbformat.reads(to_notebook(lesson), as_version=4)
    nbformat.validate(book)
    code = [cell.source for cell in book.cells if cell.cell_type == "code"]
    for text in code:
        compile(text, name, "exec")
    assert sum("bench.step(" in text for text in code) == len(lesson.steps)


def executed(name: str) -> list[str]:
    """What the cells of a lesson's notebook print, at its smallest size."""
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    lesson = catalog.find(name)
    book = nbformat.reads(to_notebook(lesson, lesson.smallest), as_version=4)
    nbclient.NotebookClient(book, timeout=300, kernel_name="python3").execute()
    outputs = [cell.outputs for cell in book.cells if cell.cell_type == "code"]
    return ["".join(o.text for o in each if o.get("name") == "stdout") for each in outputs]


def test_a_notebook_runs() -> None:
    printed = executed("reorder")
    steps = catalog.find("reorder").steps
    assert sum("right (" in text for text in printed) == len(steps)
    assert "GFLOP/s" in printed[-2]


@pytest.mark.slow
@pytest.mark.parametrize("name", catalog.lessons())
def test_every_notebook_runs(name: str) -> None:
    lesson, printed = catalog.find(name), executed(name)
    told = sum("right (" in text or "not legal" in text for text in printed)
    assert told >= len(lesson.steps)


def test_lessons_are_served_where_no_site_was_built(tmp_path: Path) -> None:
    asked: list[str] = []

    def make(name: str) -> str:
        asked.append(name)
        return f"<p>{name}</p>"

    with server.lesson_server(catalog.lessons(), make, 0) as served:
        thread = threading.Thread(target=served.serve_forever)
        thread.start()
        base = f"http://127.0.0.1:{served.server_address[1]}"
        index = urlopen(f"{base}/", timeout=10).read().decode()
        pages = [urlopen(f"{base}/split", timeout=10).read().decode() for _ in range(2)]
        with pytest.raises(HTTPError, match="404"):
            urlopen(f"{base}/etc/passwd", timeout=10)
        served.shutdown()
        thread.join()
    assert 'href="/split"' in index
    assert pages == ["<p>split</p>"] * 2
    assert asked == ["split"]  # measured once
