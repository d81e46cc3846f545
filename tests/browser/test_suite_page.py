"""A suite's page in a real browser: it can be sorted and filtered, and runs no other script."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from support.suite_rows import ROWS, row
from tvmscope.report import suite as documents

EVIL = row("<img src=x onerror=alert(1)>", "failed", reason="</script><script>alert(2)</script>")


def test_rows_are_sorted_and_filtered(chromium: Any, tmp_path: Path) -> None:
    documents.write([*ROWS, EVIL], tmp_path, old=ROWS[:2])
    page, trouble = chromium.new_page(), list[str]()
    page.on("console", lambda m: trouble.append(m.text) if m.type == "error" else None)
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.on("dialog", lambda dialog: trouble.append(dialog.message))
    page.on("request", lambda r: r.url.startswith("file:") or trouble.append(r.url))
    page.goto((tmp_path / "index.html").as_uri())

    def shown() -> list[str]:
        cells = page.locator("#rows tbody tr:visible td:first-child")
        return [str(text) for text in cells.all_inner_texts()]

    assert len(shown()) == len(ROWS) + 1
    over = page.get_by_role("button", name="over torch")
    over.click()
    assert shown()[:4] == ["c", "d", "b", "a"]
    over.click()
    assert shown()[:4] == ["a", "b", "d", "c"]
    page.get_by_role("button", name="wrong").click()
    assert shown() == ["e"]
    page.get_by_role("button", name="crashed").click()
    assert sorted(shown()) == ["e", "f"]
    page.locator("#filter").fill("signal 11")
    assert shown() == ["f"]
    assert page.locator("#shown").inner_text() == f"1 / {len(ROWS) + 1}"
    assert trouble == []
    page.close()
