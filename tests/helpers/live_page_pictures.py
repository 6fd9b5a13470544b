"""Takes pictures of the live page of the demo, in the second half of its minute, and of a report
page, in three widths and two themes. They are in build/pictures, to be looked at; two of the live
page are shown in docs/live-page.md.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

from tests.helpers.browser import ARGUMENTS

HOME = Path(__file__).parents[2]

PICTURES = HOME / "build" / "pictures"

# Seconds after the start, which `examples/demo.py` counts.
_WHEN = 53


# Width and height of the window, in which the pictures of the documentation end.
_WINDOWS = ((360, 780), (768, 1024), (1280, 1120))
_THEMES: tuple[Any, ...] = ("light", "dark")

# The pictures of the documentation.
_SHOWN = {(1280, "light"): "live-page.png", (360, "dark"): "live-page-phone.png"}


def main() -> None:
    """Run the demo for a minute and the steps of the kata, and take pictures of their pages."""
    shutil.rmtree(PICTURES, ignore_errors=True)
    PICTURES.mkdir(parents=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=ARGUMENTS
        )
        take_live_page(browser)
        take_report_page(browser)
        browser.close()


def take_live_page(browser: Browser) -> None:
    """Take those of the live page: of the whole page, and of a window of it for the docs."""
    command = [sys.executable, "-m", "penstock", "run", "examples/demo.py"]
    with subprocess.Popen(
        [*command, "--serve", "0", "--show-values", "--report", "none"],
        cwd=HOME,
        stderr=subprocess.PIPE,
        text=True,
    ) as demo:
        assert demo.stderr is not None
        found = re.search(r"http://\S+", demo.stderr.readline())
        assert found is not None
        try:
            pages = _opened(browser, found[0])
            for page in pages.values():
                page.wait_for_function("when => now.seconds >= when", arg=_WHEN, timeout=120_000)
            for of, name in _SHOWN.items():
                pages[of].screenshot(path=HOME / "docs" / "images" / name)
            _keep(pages, "live-page")
        finally:
            demo.terminate()
            demo.communicate()


def take_report_page(browser: Browser) -> None:
    """Take those of the page that compares the steps of the kata."""
    report = PICTURES / "kata.html"
    command = [sys.executable, "-m", "penstock", "kata", "--variant", "all"]
    subprocess.run([*command, "--report-page", report], cwd=HOME, check=True, capture_output=True)
    _keep(_opened(browser, report.as_uri()), "kata")


def _opened(browser: Browser, url: str) -> dict[tuple[int, str], Page]:
    """The page in each window and theme."""
    pages: dict[tuple[int, str], Page] = {}
    for (width, height), theme in product(_WINDOWS, _THEMES):
        page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=theme)
        page.goto(url)
        pages[width, theme] = page
    return pages


def _keep(pages: dict[tuple[int, str], Page], name: str) -> None:
    for (width, theme), page in pages.items():
        page.screenshot(path=PICTURES / f"{name}-{theme}-{width}.png", full_page=True)
        page.close()
