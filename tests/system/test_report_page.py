"""The report page as a browser shows it: text stays text, nothing is loaded, it fits and prints."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

JOB = """
import asyncio
from penstock import adaptive_flat_map, distinct_within, group_by, latency_histogram, ops
from penstock import read_jsonl, spread, write_jsonl

async def work(event):
    await asyncio.sleep(0.005)
    if event["n"] % 50 == 7:
        raise ValueError(f"<script>alert(1)</script> <b>{event['k']}</b>")
    return event

pipeline = read_jsonl().pipe(
    distinct_within(60, by="n"),
    group_by("k"),
    spread(),
    adaptive_flat_map(work, on_error="skip"),
    ops.map(lambda event: event),
).to(write_jsonl(), latency_histogram(None, report=None))
"""
SCRIPT = "<img src=x onerror=alert(1)><script>alert(2)</script>"


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    (folder / "job.py").write_text(JOB, encoding="utf-8")
    events = [{"n": n, "k": SCRIPT if n % 3 else f"key {n % 10}"} for n in range(300)]
    lines = "".join(json.dumps(event) + "\n" for event in events) + f"{SCRIPT}\n"
    subprocess.run(
        [
            *(sys.executable, "-m", "penstock", "run", "job.py"),
            *("--report-page", "page.html", "--show-values"),
        ],
        input=lines,
        capture_output=True,
        text=True,
        cwd=folder,
        check=False,
    )
    return folder / "page.html"


class Shown:
    """The page in a window of its own, with what it asked for and said."""

    def __init__(self, browser: Any, path: Path, width: int, scheme: str) -> None:
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        self.page = context.new_page()
        self.asked: list[str] = []
        self.said: list[str] = []
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("dialog", lambda dialog: self.said.append(dialog.message))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.goto(path.as_uri())


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 768, 1280])
def test_the_page_opens_fits_and_asks_for_nothing(
    browser: Any, page_file: Path, width: int, scheme: str
) -> None:
    shown = Shown(browser, page_file, width, scheme)
    assert shown.asked == [page_file.as_uri()]
    assert shown.said == []
    assert shown.page.evaluate("document.documentElement.scrollWidth") <= width
    headings = shown.page.locator("h2").all_inner_texts()
    assert headings[:3] == ["Where every event is", "Pipeline", "Throughput"]
    picture = page_file.with_name(f"page-{width}-{scheme}.png")
    shown.page.screenshot(path=picture, full_page=True)
    assert picture.stat().st_size > 20_000


def test_a_script_in_a_key_an_error_or_a_line_stays_text(browser: Any, page_file: Path) -> None:
    page = Shown(browser, page_file, 1280, "light").page
    assert page.locator("script, img, b b, table b").count() == 0
    text = page.locator("body").inner_text()
    assert SCRIPT in text
    assert "ValueError: <script>alert(1)</script> <b>" in text


def test_light_and_dark_differ_and_what_is_printed_is_light(browser: Any, page_file: Path) -> None:
    ground = "getComputedStyle(document.querySelector('section')).backgroundColor"
    light = Shown(browser, page_file, 1280, "light").page.evaluate(ground)
    dark = Shown(browser, page_file, 1280, "dark").page
    assert dark.evaluate(ground) != light
    dark.emulate_media(media="print", color_scheme="dark")
    assert dark.evaluate(ground) == light


def test_printing_keeps_each_section_on_a_page(browser: Any, page_file: Path) -> None:
    page = Shown(browser, page_file, 1280, "light").page
    page.emulate_media(media="print")
    kept = "getComputedStyle(document.querySelector('section')).breakInside"
    assert page.evaluate(kept) == "avoid"
    document = page.pdf(format="A4")
    assert document.startswith(b"%PDF")


def test_the_charts_have_lines_within_their_frames(browser: Any, page_file: Path) -> None:
    page = Shown(browser, page_file, 1280, "light").page
    outside = page.evaluate(
        """() => [...document.querySelectorAll('svg.chart')].flatMap((chart) => {
            const frame = chart.getBoundingClientRect();
            return [...chart.querySelectorAll('.line')].filter((line) => {
                const box = line.getBoundingClientRect();
                return box.left < frame.left || box.right > frame.right + 1
                    || box.top < frame.top || box.bottom > frame.bottom;
            }).length;
        })"""
    )
    assert len(outside) == 6
    assert set(outside) == {0}
