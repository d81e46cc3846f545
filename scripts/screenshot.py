"""A picture of a session's page for the README, taken by the system's Chromium.

python scripts/screenshot.py SESSION [-o docs/images/report.png] [--dark] [--height 1500]
"""

from __future__ import annotations

import argparse
import os
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.sync_api import sync_playwright

from tvmscope.core.session import load
from tvmscope.report.formats import html


def main() -> None:
    """Render, open, and keep the upper part of the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("session", type=Path, help="a results folder")
    parser.add_argument("-o", "--output", type=Path, default=Path("docs/images/report.png"))
    parser.add_argument("--dark", action="store_true")
    parser.add_argument("--width", type=int, default=1180)
    parser.add_argument("--height", type=int, default=1500)
    arguments = parser.parse_args()
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []  # it refuses to run as root
    with TemporaryDirectory() as folder, sync_playwright() as playwright:
        file = Path(folder) / "report.html"
        file.write_text(html.render([load(arguments.session)]), encoding="utf-8")
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=sandbox)
        page = browser.new_page(
            viewport={"width": arguments.width, "height": arguments.height},
            color_scheme="dark" if arguments.dark else "light",
            device_scale_factor=1.5,
        )
        page.goto(file.as_uri())
        if page.locator(".plot").count():
            page.wait_for_selector("html[data-drawn]")
        page.screenshot(path=arguments.output)
        browser.close()


if __name__ == "__main__":
    main()
