"""The example on the logs of an hour, and on virtual time with logs that grow."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock.command.pipelines.load import load_module
from penstock.streams.testing import run_virtual

EXAMPLE = Path(__file__).parents[3] / "examples" / "top_pages.py"


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)


def loaded() -> Any:
    sys.modules.pop("top_pages", None)
    return load_module(str(EXAMPLE), [], "pipeline")


def viewed(server: str, second: float, page: str) -> None:
    with open(f"{server}.jsonl", "a", encoding="utf-8") as file:
        file.write(json.dumps({"page": page, "at": second}) + "\n")


def minutes() -> list[Any]:
    lines = Path("top.jsonl").read_text("utf-8").splitlines()
    return [(one["minute"], one["top"]) for one in map(json.loads, lines)]


def test_the_minutes_are_those_of_all_lines_although_a_server_has_stopped(
    capfd: pytest.CaptureFixture[str],
) -> None:
    loaded().main(["--views", "3000"])
    assert capfd.readouterr().out.splitlines()[-1] == "60 minutes; the same as by hand: True"


def test_a_minute_waits_for_each_server_that_is_not_idle_and_the_last_ends_by_the_clock() -> None:
    async def story() -> None:
        for server in "abc":
            viewed(server, 1, "/")
        running = loaded().pipeline.start()
        await asyncio.sleep(10)
        viewed("a", 69, "/tea")
        await asyncio.sleep(10)
        viewed("b", 68, "/tea")
        await asyncio.sleep(9)
        assert minutes() == []
        # From 30 on c is idle.
        await asyncio.sleep(2)
        assert minutes() == [(0, [["/", 3]])]
        await asyncio.sleep(100)
        assert minutes()[1:] == [(1, [["/tea", 2]])]
        await running.drain()

    run_virtual(story())
