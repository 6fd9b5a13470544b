"""Chromium, in which tests look at pages; they are skipped where it is not installed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

__all__ = ["ARGUMENTS", "browser", "chromium"]

# Its own sandbox needs rights that containers do not have.
ARGUMENTS = ("--no-sandbox",)


@pytest.fixture(scope="session")
def chromium() -> str:
    """Where Chromium is."""
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("the page is not looked at, because Chromium is not installed")
    return path


# Not of the session: while it is open, its event loop runs in the thread of the tests.
@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        yield browser
        browser.close()
