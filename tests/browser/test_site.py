"""The documentation site: built offline without a warning, read in a real browser, searched."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support import report_samples
from tvmscope import messages
from tvmscope.learn.pages.server import site_server
from tvmscope.report.formats import html

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(not (ROOT / "scripts").is_dir(), reason="needs a checkout")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both languages, with one lesson at its smallest size; a warning would be a failure."""
    pytest.importorskip("furo")
    folder = tmp_path_factory.mktemp("site")
    flags = ["--lessons", "split", "--small", "--output", folder]
    command = [sys.executable, "scripts/site.py", *flags]
    made = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=300,
        env={**os.environ, "https_proxy": "http://127.0.0.1:9", "http_proxy": "http://127.0.0.1:9"},
    )  # fmt: skip
    assert made.returncode == 0, made.stderr[-3000:]
    return folder


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """As `tvmscope learn --serve` serves it."""
    with site_server(site, 0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    loaded = re.compile(r"""(?:<script[^>]*src|<link[^>]*href|<img[^>]*src)=["'](https?:)?//""")
    for page in site.rglob("*.html"):
        assert not loaded.search(page.read_text("utf-8")), page
    for sheet in site.rglob("*.css"):
        assert not re.search(r"url\(['\"]?(https?:)?//|@import", sheet.read_text("utf-8")), sheet


def test_every_page_is_in_both_languages(site: Path) -> None:
    every = {p.relative_to(site) for p in site.rglob("*.html")}
    english = {page for page in every if page.parts[0] != "zh"}
    chinese = {p.relative_to(site / "zh") for p in (site / "zh").rglob("*.html")}
    assert english == chinese
    assert Path("lessons/split.html") in english


@pytest.mark.parametrize(
    ("page", "title", "said"),
    [
        ("lessons/split.html", "split: one loop becomes two", "All steps"),
        ("zh/lessons/split.html", "split：一层循环切成两层", "全部步骤"),
        ("measuring.html", "How tvmscope measures", "95 %"),
        ("zh/measuring.html", "tvmscope 怎样测量", "95 %"),
        ("zh/glossary.html", "术语表", "自动调优"),
    ],
)
def test_a_browser_reads_lessons_and_guides(
    chromium: Any, address: str, page: str, title: str, said: str
) -> None:
    trouble: list[str] = []
    opened = chromium.new_page(viewport={"width": 1100, "height": 800})
    opened.on("pageerror", lambda error: trouble.append(str(error)))
    opened.on(
        "request", lambda r: None if r.url.startswith((address, "data:")) else trouble.append(r.url)
    )
    opened.goto(f"{address}/{page}")
    heading = opened.locator("h1").first.inner_text()
    text = opened.locator("article").inner_text()
    opened.close()
    assert title in heading
    assert said in text
    assert trouble == []


@pytest.mark.parametrize(
    ("language", "query", "page"),
    [
        ("zh/", "寄存器", "lessons/split"),
        ("zh/", "置信区间", "measuring"),
        ("", "interval", "measuring"),
    ],
)
def test_a_search_finds_its_page(
    chromium: Any, address: str, language: str, query: str, page: str
) -> None:
    opened = chromium.new_page()
    opened.goto(f"{address}/{language}search.html?q={query}")
    opened.wait_for_selector("#search-results li a", timeout=20_000)
    found = opened.locator("#search-results li a").evaluate_all("links => links.map(a => a.href)")
    opened.close()
    assert any(page in link for link in found)


def test_strangers_names_are_refused(address: str) -> None:
    from urllib.error import HTTPError
    from urllib.request import Request, urlopen

    request = Request(f"{address}/index.html", headers={"Host": "evil.example"})
    with pytest.raises(HTTPError, match="403"):
        urlopen(request, timeout=10)


@pytest.mark.parametrize(
    ("language", "title"), [("en", "Where the gap comes from"), ("zh", "差距从哪里来")]
)
def test_a_browser_reads_a_report_in_both_languages(
    chromium: Any, tmp_path: Path, language: str, title: str
) -> None:
    file = tmp_path / "report.html"
    try:
        messages.use_language(language)
        file.write_text(html.render([report_samples.ALL["profiled"]()]), encoding="utf-8")
    finally:
        messages.use_language(None)
    trouble: list[str] = []
    opened = chromium.new_page()
    opened.on("pageerror", lambda error: trouble.append(str(error)))
    opened.goto(file.as_uri())
    opened.wait_for_selector("html[data-drawn]", timeout=20_000)
    text = opened.locator("main").inner_text()
    labels = opened.locator(".plot .ytick text").all_text_contents()
    opened.close()
    assert title in text
    assert ("布局转换" in labels) == (language == "zh")
    assert trouble == []
