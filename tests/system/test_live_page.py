"""The live page of `penstock run FILE --serve`, looked at in headless Chromium.

Screenshots are kept in build/screenshots.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from penstock.streams.nats.client.server import Servers
from tests.helpers.servers.command import command_in, lines

SCREENSHOTS = Path(__file__).parents[2] / "build" / "screenshots"

# How long the handler takes is read from a file, so that a test can change it.
PIPELINE = """
import asyncio
from pathlib import Path
from penstock import *
from penstock import ops

async def events():
    number = 0
    while True:
        await asyncio.sleep(0.02)
        for name in ("<script>document.title = 'attacked'</script>", "b" * 200, "c", "d"):
            number += 1
            yield {"number": number, "name": name}

async def work(event):
    await asyncio.sleep(float(Path("seconds").read_text()))
    if event["number"] % 50 == 3:
        raise ValueError("<img src=x onerror=\\"document.title = 'attacked'\\">")
    return event

pipeline = (
    from_async_iterable(events)
    .pipe(
        group_by("name", buffer=100, overflow="wait"),
        spread(),
        adaptive_flat_map(work, Fixed(8), on_error=route(dead_letters("letters.jsonl"))),
    )
    .to(for_each(lambda event: None), write_jsonl("out.jsonl"))
)
"""


class Served:
    """`penstock run` in a folder, with a live page."""

    def __init__(self, folder: Path, seconds: float, *options: str, source: str = PIPELINE) -> None:
        (folder / "orders.py").write_text(source, encoding="utf-8")
        self._seconds = folder / "seconds"
        self.takes(seconds)
        words = [sys.executable, "-m", "penstock", "run", "orders.py", "--serve", "0", *options]
        with open(folder / "said", "w", encoding="utf-8") as said:
            self.process = subprocess.Popen(
                words,
                cwd=folder,
                env={**os.environ, "PYTHONPATH": os.getcwd(), "PENSTOCK_TOKEN": "right"},
                stdin=subprocess.PIPE,
                stderr=subprocess.PIPE,
                stdout=said,
                text=True,
            )
        assert self.process.stderr is not None
        first = self.process.stderr.readline()
        found = re.search(r"live page: (http://\S+)", first)
        assert found is not None, first + self.process.stderr.read()
        self.url = found[1]
        # What it reports later must not fill the pipe.
        self._reader = subprocess.Popen(
            [sys.executable, "-c", "import sys; sys.stdin.buffer.read()"],
            stdin=self.process.stderr,
        )

    def takes(self, seconds: float) -> None:
        """Have the handler take so long from now on."""
        beside = self._seconds.with_suffix(".new")
        beside.write_text(str(seconds), encoding="utf-8")
        beside.replace(self._seconds)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stderr is not None
        self.process.stderr.close()
        assert self.process.stdin is not None
        self.process.stdin.close()
        self._reader.wait()


Serve = Callable[..., Served]
Look = Callable[..., Page]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    begun: list[Served] = []

    def start(seconds: float, *options: str, **others: str) -> Served:
        begun.append(Served(tmp_path, seconds, *options, **others))
        return begun[-1]

    yield start
    for served in begun:
        served.end()


@pytest.fixture
def look(browser: Browser) -> Iterator[Look]:
    """Opens a page of a given width and theme; it must report no error."""
    errors: list[str] = []
    opened: list[Page] = []

    def open_page(url: str, width: int = 1280, theme: Any = "light") -> Page:
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=theme)
        page.set_default_timeout(30_000)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(url)
        opened.append(page)
        return page

    expect.set_options(timeout=30_000)
    yield open_page
    for page in opened:
        page.close()
    assert errors == []


def keep(page: Page, name: str) -> None:
    """Keep a screenshot."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=True)


def box(page: Page, number: int) -> Any:
    return page.locator(".stage").nth(number - 1)


def test_the_page_opens_and_shows_every_stage(serve: Serve, look: Look) -> None:
    page = look(serve(0.01).url)
    expect(page.locator("#state")).to_have_text("running")
    expect(page.locator(".stage .name")).to_have_text(
        [
            "from_async_iterable",
            "group_by",
            "spread",
            "adaptive_flat_map",
            "for_each",
            "write_jsonl",
        ]
    )
    expect(page.locator(".arrow b").first).to_have_text(re.compile(r"\d+/s"))
    expect(page.locator("#letters tbody tr")).to_contain_text("adaptive_flat_map")
    assert page.title() == "orders.py \N{EN DASH} penstock"


def test_a_box_fills_when_the_handler_is_slowed_and_empties_again(serve: Serve, look: Look) -> None:
    served = serve(0.001)
    page = look(served.url)
    expect(box(page, 2)).to_have_attribute("data-level", "calm")
    served.takes(1.0)
    expect(box(page, 2)).to_have_attribute("data-level", "full")
    expect(box(page, 2).locator(".level")).to_contain_text("full")
    filled = box(page, 2).locator(".fill").evaluate("fill => parseFloat(fill.style.width)")
    assert filled >= 90
    keep(page, "full-light-1280")
    served.takes(0.001)
    expect(box(page, 2)).to_have_attribute("data-level", "calm")


def test_a_drain_from_the_page_shows_until_the_end(serve: Serve, look: Look) -> None:
    served = serve(1.0, "--allow-control")
    page = look(served.url)
    drain = page.get_by_role("button", name="Drain")
    # By the keyboard alone.
    expect(drain).to_be_enabled()
    drain.focus()
    page.once("dialog", lambda asked: asked.dismiss())
    page.keyboard.press("Enter")
    expect(page.locator("#state")).to_have_text("running")
    page.once("dialog", lambda asked: asked.accept())
    page.keyboard.press("Enter")
    expect(page.locator("#state")).to_have_text("draining")
    keep(page, "draining-light-1280")
    served.takes(0.001)
    expect(page.locator("#state")).to_have_text("drained")
    served.process.wait(60)
    expect(page.locator("#state")).to_have_text("drained")
    assert not drain.is_enabled()


def test_pause_and_resume_are_seen_by_every_page(serve: Serve, look: Look) -> None:
    served = serve(0.001, "--allow-control")
    page, other = look(served.url), look(served.url.partition("#")[0])
    page.get_by_role("button", name="Pause").click()
    expect(other.locator("#state")).to_have_text("paused")
    page.get_by_role("button", name="Resume").click()
    expect(other.locator("#state")).to_have_text("running")


def test_the_page_of_a_killed_process_shows_that_it_is_gone(serve: Serve, look: Look) -> None:
    served = serve(0.01)
    page = look(served.url)
    expect(page.locator("#state")).to_have_text("running")
    served.process.kill()
    expect(page.locator("#state")).to_have_text("gone")
    keep(page, "gone-light-1280")


def test_a_process_that_stands_still_shows_as_silent(serve: Serve, look: Look) -> None:
    served = serve(0.01)
    page = look(served.url)
    expect(page.locator("#state")).to_have_text("running")
    served.process.send_signal(signal.SIGSTOP)
    expect(page.locator("#state")).to_have_text("silent")
    served.process.send_signal(signal.SIGCONT)
    expect(page.locator("#state")).to_have_text("running")


def test_a_wrong_token_is_refused(serve: Serve, look: Look) -> None:
    served = serve(0.01, "--allow-control")
    address = served.url.partition("#")[0]
    page = look(f"{address}#token=wrong")
    page.once("dialog", lambda asked: asked.accept())
    page.get_by_role("button", name="Drain").click()
    expect(page.get_by_role("alert")).to_contain_text("token")
    expect(page.locator("#state")).to_have_text("running")
    assert served.process.poll() is None
    # The token is in no address that was asked for.
    assert "right" not in page.evaluate("performance.getEntries().map(one => one.name).join()")


def test_beyond_this_machine_nothing_is_seen_with_a_wrong_token(
    serve: Serve, look: Look, tmp_path: Path
) -> None:
    served = serve(0.01, "--serve", "0.0.0.0:0", "--host", "localhost")
    port = re.search(r":(\d+)/", served.url)
    assert port is not None
    page = look(f"http://localhost:{port[1]}/#token=wrong")
    expect(page.locator("#state")).to_have_text("refused")
    expect(page.get_by_role("alert")).to_contain_text("token")
    assert page.locator(".stage").count() == 0
    page = look(f"http://localhost:{port[1]}/#token=right")
    expect(page.locator("#state")).to_have_text("running")


def test_a_script_in_a_key_or_an_error_stays_text(serve: Serve, look: Look) -> None:
    page = look(serve(0.5, "--show-values").url)
    expect(page.locator("#keys")).to_contain_text("<script>document.title = 'attacked'</script>")
    expect(page.locator("#errors")).to_contain_text("<img src=x onerror")
    page.locator("#letter summary").click()
    expect(page.locator("#letter-text")).to_contain_text("'number': 3")
    assert page.locator("main script, main img").count() == 0
    assert page.title() == "orders.py \N{EN DASH} penstock"
    keep(page, "values-light-1280")


def test_values_are_not_shown_unless_they_are_asked_for(serve: Serve, look: Look) -> None:
    page = look(serve(0.5).url)
    expect(page.locator("#keys tbody tr").first).to_contain_text("key 1")
    expect(page.locator("#letter")).to_contain_text("--show-values")
    assert "attacked" not in page.content()
    assert "'number'" not in page.content()


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 800, 1280])
def test_every_width_shows_all_without_scrolling_sideways(
    serve: Serve, look: Look, width: int, theme: str
) -> None:
    page = look(serve(0.2, "--show-values").url, width, theme)
    expect(box(page, 2)).not_to_have_attribute("data-level", "calm")
    expect(page.locator("#keys tbody tr").first).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    # A dark page is dark, with light text.
    sheet, ink = page.evaluate(
        "['backgroundColor', 'color'].map(of => getComputedStyle(document.documentElement)[of])"
        ".map(text => Math.max(...text.match(/[0-9]+/g).map(Number)))"
    )
    assert (sheet < 64 < 192 < ink) if theme == "dark" else (ink < 128 < 192 < sheet)
    keep(page, f"{theme}-{width}")


_OVERHANGING = """
[...document.querySelectorAll(".stage")].flatMap((stage) =>
  [...stage.querySelectorAll(".name, .detail, .level, .facts, .why")].filter((text) =>
    text.getBoundingClientRect().right > stage.getBoundingClientRect().right + 0.5
    || text.scrollWidth > text.clientWidth + 1 && text.clientWidth > 0
  ).map((text) => `${text.className}: ${text.textContent}`)
)
"""


def test_the_charts_show_the_first_seconds_at_once(serve: Serve, look: Look) -> None:
    page = look(serve(0.01).url)
    curve = page.locator("#throughput .finished")
    expect(curve).to_have_attribute("d", re.compile(r"^M\d.*L600"))
    expect(page.locator("#throughput-from")).to_have_text("10 s ago")
    expect(page.locator("#throughput-top")).to_have_text(re.compile(r"highest [1-9]\d+/s"))
    # One second is a tenth of the width, and not a dot.
    assert curve.evaluate("curve => curve.getBBox().width") >= 60


def test_forty_stages_two_sinks_and_long_names_fit_in_a_narrow_page(
    serve: Serve, look: Look
) -> None:
    stages = ", ".join(["ops.map(" + "n" * 200 + ")"] * 38)
    source = PIPELINE.replace("    .to(for_each", f"    .pipe({stages})\n    .to(for_each").replace(
        "pipeline = (", "def " + "n" * 200 + "(event):\n    return event\n\npipeline = ("
    )
    source = re.sub(r"\bwork\b", "w" * 200, source)
    page = look(serve(0.01, source=source).url, 360)
    expect(page.locator(".stage")).to_have_count(44)
    expect(page.locator(".arrow b").nth(41)).to_have_text(re.compile(r"\d+/s"))
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    expect(box(page, 4)).to_contain_text("w" * 200)
    # Nothing is cut off: every text is within its box.
    assert page.evaluate(_OVERHANGING) == []
    keep(page, "forty-stages-light-360")


BRANCHES = PIPELINE.replace(
    "pipeline = (\n    from_async_iterable(events)\n",
    """
shared = from_async_iterable(events).pipe(ops.filter(bool), ops.share())
other = from_async_iterable(events).pipe(
    ops.map(dict), ops.zip(shared), ops.map(lambda two: two[0])
)
pipeline = (
    shared.pipe(ops.map(dict), ops.merge(other))
""",
)

# Each arrow of the lanes: the numbers of the boxes above and below it that it touches, and the
# boxes through which it goes.
_JOINED = """
[...document.querySelectorAll(".arrows path:not(.head)")].map((arrow) => {
  const frame = document.querySelector(".arrows").getBoundingClientRect();
  const points = arrow.getAttribute("d").slice(1).split("L")
    .map((point) => point.split(" ").map(Number));
  const boxes = [...document.querySelectorAll("#stages > .stage, #stages > .sinks")].map((box) => {
    const { left, right, top, bottom } = box.getBoundingClientRect();
    return {
      name: box.querySelector(".number").textContent,
      left: left - frame.left, right: right - frame.left,
      top: top - frame.top, bottom: bottom - frame.top,
    };
  });
  const near = (one, other) => Math.abs(one - other) < 1;
  const [[x, y], [toX, toY]] = [points[0], points[points.length - 1]];
  const through = boxes.filter((box) => points.slice(1).some(([endX, endY], at) => {
    const [startX, startY] = points[at];
    return Math.max(startX, endX) > box.left + 1 && Math.min(startX, endX) < box.right - 1
      && Math.max(startY, endY) > box.top + 1 && Math.min(startY, endY) < box.bottom - 1;
  }));
  return [
    boxes.find((box) => near(box.bottom, y) && box.left < x && x < box.right)?.name,
    boxes.find((box) => near(box.top, toY) && box.left < toX && toX < box.right)?.name,
    through.length,
  ].join(" ");
}).sort()
"""


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_other_streams_that_a_stage_reads_are_columns_beside_it(
    serve: Serve, look: Look, theme: str
) -> None:
    page = look(serve(0.01, source=BRANCHES).url, 1280, theme)
    expect(page.locator(".arrows text")).to_have_count(13)
    expect(page.locator(".arrows text").first).to_have_text(re.compile(r"[1-9]\d*/s"))
    arrows = ["1 2", "2 3", "3 4", "3 7", "4 9", "5 6", "6 7", "7 8", "8 9", "9 10", "10 11"]
    arrows += ["11 12", "12 13"]
    assert page.evaluate(_JOINED) == sorted(f"{arrow} 0" for arrow in arrows)
    lanes = page.evaluate("[...boxes.values()].map((one) => one.stage.lane ?? 0)")
    assert lanes == [0, 0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0]
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280
    keep(page, f"branches-{theme}-1280")


def test_a_narrow_page_names_what_a_stage_reads(serve: Serve, look: Look) -> None:
    page = look(serve(0.01, source=BRANCHES).url, 360)
    expect(page.locator(".arrow b").nth(2)).to_have_text(re.compile(r"^\d+/s to 4, \d+/s to 7$"))
    expect(box(page, 9)).to_contain_text("reads 4 and 8")
    assert page.locator(".arrows").is_hidden()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    keep(page, "branches-light-360")


def test_worker_processes_are_shown(serve: Serve, look: Look) -> None:
    page = look(serve(0.05, "--workers", "2").url)
    expect(page.locator("#workers tbody tr")).to_have_count(2)
    expect(page.locator(".arrow b").nth(3)).to_have_text(re.compile(r"[1-9]\d*/s"))
    keep(page, "workers-light-1280")


ON_SERVERS = """
import asyncio
from penstock import *

async def work(event):
    await asyncio.sleep(0.2)
    return event

pipeline = (
    read_jsonl()
    .pipe(distinct_within(10, by="id"), group_by("k"), spread(), adaptive_flat_map(work, Fixed(2)))
    .to(for_each(lambda event: None))
)
"""


# The numbers of each worker.
_FLEET = """[...document.querySelectorAll("#fleet tbody tr")].map((row) =>
  [...row.cells].slice(1).map((cell) => Number(cell.textContent.replace(",", "")))
)"""


# How many events of the partitions of each worker are unfinished, by their own texts.
_BEHIND = """[...document.querySelectorAll("#fleet tbody tr")].map((row) =>
  [...document.querySelectorAll("#partitions li")]
    .filter((one) => one.title.endsWith(row.cells[0].textContent.split(" ")[0]))
    .reduce((sum, one) => sum + Number(one.title.match(/: ([0-9]+) unfinished/)[1]), 0)
)"""


def test_one_worker_shows_all_workers_and_partitions(
    serve: Serve, look: Look, server: Servers, tmp_path: Path
) -> None:
    penstock = command_in(tmp_path, ON_SERVERS)
    on = ("--on", server.urls[0], "--name", "page")
    given = lines(*({"id": n, "k": n % 40} for n in range(300)))
    fed = penstock("publish", "pipe.py", *on, "--partitions", "6", given=given)
    assert fed.returncode == 0, fed.stderr
    options = (*on, "--lease", "3", "--report", "none")
    served = serve(0, *options, "--worker", "worker-1", source=ON_SERVERS)
    serve(0, *options, "--worker", "worker-2", source=ON_SERVERS)
    page = look(served.url)
    expect(page.locator("#fleet tbody tr")).to_have_count(2)
    expect(page.locator("#fleet tbody tr").first).to_contain_text("worker-1 (this one)")
    expect(page.locator("#fleet tbody tr").nth(1)).to_contain_text("worker-2")
    # The counts of each are known: partitions, behind, in flight, waiting, finished and failed.
    expect(page.locator("#fleet tbody")).not_to_contain_text("\N{EN DASH}")
    # While a partition is handed over nobody owns it.
    page.wait_for_function(
        f"""() => {{
          const sum = (at) => {_FLEET}.reduce((n, row) => n + row[at], 0);
          return sum(0) === 6 && [1, 2, 3, 4].every((at) => sum(at) > 0);
        }}"""
    )
    workers, behind_of_each = page.evaluate(f"[{_FLEET}, {_BEHIND}]")
    assert [behind for _, behind, *_ in workers] == behind_of_each
    for _, behind, in_flight, _, finished, failed in workers:
        assert in_flight <= 2
        assert behind + finished <= 300
        assert failed == 0
    expect(page.locator("#partitions li")).to_have_count(6)
    expect(page.locator("#partitions li.free")).to_have_count(0)
    expect(page.locator("#here")).to_contain_text("worker-1, one of 2")
    expect(page.locator("#fleet-all")).to_contain_text(re.compile(r"[1-9]\d* events unfinished"))
    keep(page, "fleet-light-1280")


def test_the_first_paint_is_soon(serve: Serve, look: Look) -> None:
    page = look(serve(0.01).url)
    expect(page.locator(".stage")).to_have_count(6)
    painted = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
    sizes = page.evaluate(
        "performance.getEntriesByType('resource').filter(one => !one.name.endsWith('/stream'))"
        ".reduce((sum, one) => sum + one.encodedBodySize, 0)"
    )
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    figures = {"first paint, ms": painted, "bytes": sizes}
    (SCREENSHOTS / "figures.json").write_text(json.dumps(figures), encoding="utf-8")
    assert sizes < 200_000


def test_a_number_that_rounds_up_to_the_next_unit_is_written_in_digits(
    serve: Serve, look: Look
) -> None:
    page = look(serve(0.01).url)
    assert page.evaluate("[99.4, 99.7, 9.97, 0].map(rate)") == ["99", "100", "10", "0"]
    assert page.evaluate("[999, 999_400, 999_700].map(bytes)") == ["999 B", "999 kB", "1.00 MB"]
    assert page.evaluate("[0.00015, 0.9999].map(duration)") == ["150 µs", "1000 ms"]
