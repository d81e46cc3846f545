"""The page in a real browser: it opens offline, draws, answers the mouse, and fits a phone."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from support import report_samples, samples
from tvmscope.core.session import to_json
from tvmscope.report.formats import html

SECTIONS = 11
Opener = Callable[..., Any]


@cache
def document(name: str) -> str:
    return html.render([report_samples.ALL[name]()])


@pytest.fixture
def opened(chromium: Any, tmp_path: Path) -> Iterator[Opener]:
    """Opens a session's page; in the end nothing may have failed or asked for the network."""
    contexts, trouble = [], []

    def open_page(name: str, **look: Any) -> Any:
        file = tmp_path / "report.html"
        file.write_text(document(name), encoding="utf-8")
        viewport = {"width": look.pop("width", 1280), "height": 900}
        context = chromium.new_context(viewport=viewport, accept_downloads=True, **look)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda m: trouble.append(m.text) if m.type == "error" else None)
        page.on("pageerror", lambda error: trouble.append(str(error)))
        page.on(
            "request",
            lambda r: None if r.url.startswith(("file:", "blob:")) else trouble.append(r.url),
        )
        page.goto(file.as_uri())
        if page.locator(".plot").count():
            page.wait_for_selector("html[data-drawn]", timeout=20_000)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert trouble == []


def background(page: Any) -> str:
    found: str = page.evaluate("getComputedStyle(document.body).backgroundColor")
    return found


def test_every_section_is_filled_and_both_figures_are_drawn(opened: Opener) -> None:
    page = opened("profiled")
    sections = page.locator("section[data-section]")
    assert sections.count() == SECTIONS
    assert all(len(text.split()) > 5 for text in sections.all_inner_texts())
    assert page.locator(".empty").count() == 0
    assert page.locator(".plot .main-svg").count() >= 2
    assert page.locator("#m1-gap-figure .bars .point").count() > 10


def test_hovering_a_roofline_point_shows_its_kernel(opened: Opener) -> None:
    page = opened("profiled")
    box = page.locator("#m1-roof-figure-0")
    box.scroll_into_view_if_needed()
    # The drag layer above the points takes the mouse, so aim at the place, not the element.
    spot = box.locator(".scatterlayer .points path").first.bounding_box()
    page.mouse.move(spot["x"] + spot["width"] / 2, spot["y"] + spot["height"] / 2)
    label = box.locator(".hoverlayer .hovertext")
    label.wait_for(state="visible", timeout=5_000)
    text = label.text_content()
    assert "fused_conv2d40_add_relu" in text
    assert "layer4.0.conv" in text
    assert "60 GFLOP/s" in text
    assert "bound by neither roof: reaches 30%" in text


@pytest.mark.parametrize("system", ["light", "dark"])
def test_theme_follows_the_system_and_the_switch_turns_it(opened: Opener, system: str) -> None:
    page = opened("profiled", color_scheme=system)
    before = background(page)
    dark = sum(int(n) for n in before[4:-1].split(",")) < 3 * 128
    assert dark == (system == "dark")
    ink = "getComputedStyle(document.querySelector('.plot .ytick text')).fill"
    drawn = page.evaluate(ink)
    page.get_by_role("button", name="Switch between light and dark").click()
    assert background(page) != before
    assert page.evaluate(ink) != drawn  # the figures turn too
    page.reload()
    assert background(page) != before  # and it is remembered


@pytest.mark.parametrize("name", ["profiled", "complete", "evil", "long", "several_targets"])
@pytest.mark.parametrize("width", [360, 768])
def test_no_sideways_scrolling_on_a_small_screen(opened: Opener, name: str, width: int) -> None:
    page = opened(name, width=width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_saving_gives_the_session_back(opened: Opener) -> None:
    page = opened("profiled")
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Save session.json").click()
    saved = waiting.value
    assert saved.suggested_filename == "session.json"
    expected = json.loads(json.dumps(to_json(report_samples.profiled())))
    assert json.loads(Path(saved.path()).read_text(encoding="utf-8")) == expected


def test_hostile_names_run_nothing(opened: Opener) -> None:
    page = opened("evil")
    page.wait_for_timeout(300)
    assert page.evaluate("window.evil") is None
    assert page.locator("img").count() == 0
    assert page.locator("a[href^=javascript]").count() == 0
    assert "</script>" in page.locator("h1").inner_text()


def test_a_session_without_figures_needs_no_drawing_library(opened: Opener) -> None:
    page = opened("complete")
    assert page.evaluate("typeof window.Plotly") == "undefined"
    assert page.locator("section[data-section]").count() == SECTIONS


def test_without_scripts_every_number_is_still_there(chromium: Any, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text(document("profiled"), encoding="utf-8")
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(file.as_uri())
    assert "44.0 ms" in page.locator("[data-section=backends]").inner_text()
    assert "need JavaScript" in page.locator("noscript").last.inner_text()
    assert not page.locator(".plot").first.is_visible()
    context.close()


def test_printing_is_dark_on_white_whatever_the_theme(opened: Opener) -> None:
    page = opened("profiled", color_scheme="dark")
    ink = "getComputedStyle(document.querySelector('.plot .ytick text')).fill"
    drawn = page.evaluate(ink)
    page.emulate_media(media="print")
    assert background(page) == "rgb(255, 255, 255)"
    assert not page.locator("nav").is_visible()
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate(ink) in ("rgb(27, 30, 34)", "rgb(0, 0, 0)")
    page.emulate_media(media="screen")
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.evaluate(ink) == drawn


@pytest.mark.parametrize("system", ["light", "dark"])
def test_text_has_enough_contrast(opened: Opener, system: str) -> None:
    """WCAG AA: 4.5 to 1 for normal text, on the colour that lies behind it."""
    page = opened("profiled", color_scheme=system)
    worst = page.evaluate(CONTRAST)
    assert worst[0] >= 4.5, worst


CONTRAST = """() => {
  const parse = text => text.match(/[\\d.]+/g).map(Number);
  const light = rgb => { const [r, g, b] = rgb.slice(0, 3).map(v => v / 255)
    .map(v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
    return .2126 * r + .7152 * g + .0722 * b; };
  const behind = node => { for (; node; node = node.parentElement) {
    const rgb = parse(getComputedStyle(node).backgroundColor); if (rgb.length < 4 || rgb[3] === 1)
      return rgb; } return [255, 255, 255]; };
  let worst = [99, ""];
  for (const node of document.querySelectorAll("main *, header *, nav *, footer *")) {
    if (node.closest("svg") || node.closest(".plot") || !node.offsetParent) continue;
    if (![...node.childNodes].some(c => c.nodeType === 3 && c.data.trim())) continue;
    const [a, b] = [light(parse(getComputedStyle(node).color)), light(behind(node))];
    const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
    if (ratio < worst[0]) worst = [ratio, node.className + ": " + node.textContent];
  }
  return worst; }"""


def test_several_models_open_too(chromium: Any, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    sessions = [report_samples.profiled(), samples.several_targets(), report_samples.no_findings()]
    file.write_text(html.render(sessions), encoding="utf-8")
    page = chromium.new_page()
    page.goto(file.as_uri())
    page.wait_for_selector("html[data-drawn]", timeout=20_000)
    assert page.locator(".plot .main-svg").count() >= 4
    page.close()
