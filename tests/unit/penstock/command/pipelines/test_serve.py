"""`penstock run FILE --serve PORT`: the options, and the page of a real process."""

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
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

Penstock = Callable[..., Any]

SLOW = """
import asyncio
from penstock import adaptive_flat_map, group_by, read_jsonl, spread, write_jsonl

async def work(event):
    await asyncio.sleep(0.05)
    return event

pipeline = read_jsonl().pipe(group_by("k"), spread(), adaptive_flat_map(work)).to(write_jsonl())
"""


class Page:
    """The command, which never reads the end of its input."""

    def __init__(self, folder: Path, *options: str) -> None:
        (folder / "slow.py").write_text(SLOW, encoding="utf-8")
        words = [sys.executable, "-m", "penstock", "run", "slow.py", "--serve", *options]
        self.process = subprocess.Popen(
            words,
            cwd=folder,
            env={**os.environ, "PYTHONPATH": os.getcwd(), "PENSTOCK_TOKEN": "right"},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdin is not None
        assert self.process.stderr is not None
        for n in range(50):
            self.process.stdin.write(json.dumps({"k": n % 5, "n": n}) + "\n")
        self.process.stdin.flush()
        self.said = self.process.stderr.readline()
        found = re.fullmatch(r"penstock: live page: (http://\S+/)(#token=right)?\n", self.said)
        assert found is not None, self.said + self.process.stderr.read()
        self.url = found[1]

    def get(self, path: str, **headers: str) -> tuple[int, str]:
        return self.send(Request(f"{self.url}{path}", headers=headers))

    def post(self, path: str, data: object, **headers: str) -> tuple[int, str]:
        headers |= {"Content-Type": "application/json"}
        return self.send(Request(f"{self.url}{path}", json.dumps(data).encode(), headers))

    @staticmethod
    def send(request: Request) -> tuple[int, str]:
        try:
            with urlopen(request, timeout=20) as response:
                return response.status, response.read().decode()
        except HTTPError as error:
            return error.code, error.read().decode()


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[..., Page]]:
    pages: list[Page] = []

    def start(*options: str) -> Page:
        pages.append(Page(tmp_path, *options))
        return pages[-1]

    yield start
    for page in pages:
        page.process.kill()
        page.process.communicate()


def test_a_run_shows_itself_until_it_ends(started: Callable[..., Page]) -> None:
    page = started("0")
    assert page.url.startswith("http://127.0.0.1:")
    status, text = page.get("")
    assert (status, "<title>penstock</title>" in text) == (200, True)
    assert page.get("healthz") == (200, "ok\n")
    assert page.get("readyz") == (200, "ready\n")
    assert "penstock_limit{" in page.get("metrics")[1]
    assert page.post("control", {"do": "drain"}, Authorization="Bearer right")[0] == 403
    page.process.send_signal(signal.SIGINT)
    _, said = page.process.communicate(timeout=30)
    assert page.process.returncode == 4, said
    assert "drained on a signal" in said


def test_with_a_token_it_can_be_drained_from_the_page(started: Callable[..., Page]) -> None:
    page = started("127.0.0.1:0", "--allow-control")
    assert page.said.rstrip().endswith("#token=right")
    assert page.post("control", {"do": "drain"})[0] == 401
    assert page.post("control", {"do": "drain"}, Authorization="Bearer right")[0] == 200
    _, said = page.process.communicate(timeout=30)
    assert page.process.returncode == 4, said


def test_it_shows_worker_processes_too(started: Callable[..., Page]) -> None:
    page = started("0", "--workers", "2")
    with urlopen(f"{page.url}stream", timeout=20) as lines:
        first = json.loads(lines.readline())
        assert first["fixed"]["title"] == "slow.py"
        now = json.loads(lines.readline())
    assert "change" in now


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--serve", "many"), "is not [HOST:]PORT"),
        (("--serve", "70000"), "is not [HOST:]PORT"),
        (("--serve", "127.0.0.1:"), "is not [HOST:]PORT"),
        (("--allow-control",), "--allow-control goes with --serve"),
        (("--show-values",), "--show-values goes with --serve"),
        (("--host", "me"), "--host goes with --serve"),
        (("--serve", "192.0.2.1:9464"), "cannot listen on 192.0.2.1:9464"),
    ],
)
def test_options_that_do_not_fit_are_refused_in_a_line(
    penstock: Penstock, pipeline_file: Path, options: tuple[str, ...], said: str
) -> None:
    result = penstock("run", pipeline_file, *options)
    assert result.status == 2
    assert said in result.err
    assert "Traceback" not in result.err
