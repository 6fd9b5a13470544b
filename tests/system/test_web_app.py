"""The pages of several pipelines in a web service, looked at in headless Chromium."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

SERVICE = """
import asyncio
import uvicorn
from penstock import *

async def main():
    pages = web_app(host="0.0.0.0", hosts=("127.0.0.1",), token="right", show_values=True)
    server = uvicorn.Server(uvicorn.Config(pages, port=0, log_config=None))
    serving = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    bills, mails = inbox(9), inbox(9)
    measured = (
        latency_histogram(None, report=None, by="client", keys=2),
        objective("total < 1h", share=0.9),
    )
    async with (
        bills.to(for_each(bool), *measured).start() as one,
        mails.to(for_each(bool)).start() as two,
    ):
        pages.add(one, "bills")
        pages.add(two, "mails")
        for n in range(7):
            await bills.put({"client": f"c{n % 3 * (n > 2)}"}, wait=True)
        print(server.servers[0].sockets[0].getsockname()[1], flush=True)
        await serving

asyncio.run(main())
"""


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    (tmp_path / "service.py").write_text(SERVICE, encoding="utf-8")
    with subprocess.Popen(
        [sys.executable, "service.py"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(Path.cwd()), "PATH": ""},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}/"
        process.kill()


def test_the_list_of_pipelines_leads_to_their_pages_and_passes_the_token_on(
    address: str, browser: Browser
) -> None:
    page = browser.new_page(viewport={"width": 390, "height": 700})
    page.goto(address)
    expect(page.locator("#message")).to_contain_text("needs the token")
    page.goto(f"{address}#token=right")
    lines = page.locator("#pipelines tr")
    expect(lines).to_have_count(2)
    expect(lines.first).to_have_text(re.compile(r"bills\s*running\s*7\s*7\s*0\s*0\s*0"))
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    page.get_by_role("link", name="bills").click()
    expect(page.locator("#state")).to_have_text("running")
    expect(page.locator("#title")).to_have_text("bills")
    expect(page.locator("#objectives tbody tr")).to_have_text(
        re.compile(r"4 total < 1h\s*kept\s*100 % of 7 events\s*90 %(\s*0\.00){4}")
    )
    keys = page.locator("#slow tbody tr")
    expect(keys).to_have_count(3)
    expect(keys.first).to_contain_text("c0")
    page.close()
