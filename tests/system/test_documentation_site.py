"""The documentation site as a browser shows it: search finds, pages fit, nothing is loaded."""

from __future__ import annotations

import functools
import http.server
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from docs.site.__main__ import build

PAGES = (
    "index.html",
    "tutorial.html",
    "compared.html",
    "explanation/demand.html",
    "reference/operators/adaptive_flat_map.html",
    "reference/sources/inbox.html",
)


class _Silent(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    site = build(tmp_path_factory.mktemp("docs"))
    handler = functools.partial(_Silent, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 360])
def test_a_page_fits_its_window_and_loads_nothing_from_elsewhere(
    browser: Any, address: str, width: int, scheme: str
) -> None:
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = context.new_page()
    asked: list[str] = []
    errors: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: errors.append(str(error)))
    for name in PAGES:
        page.goto(address + name)
        page.wait_for_load_state("networkidle")
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name
    assert [url for url in asked if not url.startswith((address, "data:"))] == []
    assert errors == []
    context.close()


def test_a_diagram_follows_the_theme_of_its_page(browser: Any, address: str) -> None:
    inks = []
    for scheme in ("light", "dark"):
        context = browser.new_context(color_scheme=scheme)
        page = context.new_page()
        page.goto(address + "reference/operators/batch.html")
        inks.append(page.evaluate("getComputedStyle(document.querySelector('.marble text')).fill"))
        context.close()
    assert inks[0] != inks[1]


def test_the_search_leads_to_the_page_about_what_is_typed(browser: Any, address: str) -> None:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.goto(address + "index.html", wait_until="networkidle")
    _search_field(page).fill("dead letters")
    # A result, not the link of this page, which lies below the results.
    page.locator("a[href*='replay-dead-letters.html?h=']:visible").first.click()
    page.wait_for_url("**/how-to/replay-dead-letters.html*")
    assert page.locator("h1").inner_text().startswith("Replay dead letters")
    context.close()


def _search_field(page: Any) -> Any:
    """The field of the search, opened by its key: asked again, for the page takes no key
    before its script has run, and a busy machine may run it long after it was loaded."""
    field = page.locator("input[type=text]:visible, input[type=search]:visible").first
    for _ in range(60):
        page.keyboard.press("Control+k")
        page.wait_for_timeout(500)
        if field.is_visible():
            return field
    raise AssertionError("the search did not open in 60 tries")
