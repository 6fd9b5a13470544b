"""Takes the pictures of docs/live-page.md, of the demo in the second half of its minute.

python -m tests.helpers.live_page_pictures
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright

HOME = Path(__file__).parents[2]

# Seconds after the start, which `examples/demo.py` counts.
_WHEN = 53


def main() -> None:
    """Run the demo for a minute, and take a picture of its page in two themes and widths."""
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
            take(found[0])
        finally:
            demo.terminate()
            demo.communicate()


def take(url: str) -> None:
    """Take the pictures of the page at this address."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        themes: list[tuple[str, int, int, Any]] = [
            ("live-page", 1280, 1120, "light"),
            ("live-page-phone", 360, 780, "dark"),
        ]
        pages: list[tuple[str, Page]] = []
        for name, width, height, theme in themes:
            size: Any = {"width": width, "height": height}
            pages.append((name, browser.new_page(viewport=size, color_scheme=theme)))
            pages[-1][1].goto(url)
        for _, page in pages:
            page.wait_for_function("when => now.seconds >= when", arg=_WHEN, timeout=120_000)
        for name, page in pages:
            page.screenshot(path=HOME / "docs" / "images" / f"{name}.png")
        browser.close()


if __name__ == "__main__":
    main()
