"""The example on a day of clicks, and on virtual time with a file that grows."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock.command.pipelines.load import load_module
from penstock.streams.testing import run_virtual

EXAMPLE = Path(__file__).parents[3] / "examples" / "visits.py"


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)


def loaded() -> Any:
    sys.modules.pop("visits", None)
    names = ["clicks.jsonl", "visits.jsonl", "visits.state"]
    return load_module(str(EXAMPLE), names, "pipeline")


def clicked(user: str, second: float) -> None:
    with open("clicks.jsonl", "a", encoding="utf-8") as file:
        file.write(json.dumps({"user": user, "url": "/", "at": second}) + "\n")


async def run_until(second: float, clicks: dict[float, str]) -> None:
    """Run the example until then; meanwhile users click, at some seconds."""
    loop = asyncio.get_running_loop()
    running = loaded().pipeline.start()
    for at, user in clicks.items():
        await asyncio.sleep(at - loop.time())
        clicked(user, at)
    await asyncio.sleep(second - loop.time())
    await running.drain()


def visits() -> list[tuple[str, int, int]]:
    lines = Path("visits.jsonl").read_text("utf-8").splitlines()
    return [(one["user"], one["pages"], one["minutes"]) for one in map(json.loads, lines)]


def test_the_visits_of_a_day_are_those_of_its_sorted_clicks(
    capfd: pytest.CaptureFixture[str],
) -> None:
    loaded().main(["--clicks", "1000"])
    *_, late, _, same = capfd.readouterr().out.splitlines()
    assert "late events: " in late
    assert same.endswith("the same as by hand: True")


def test_the_last_visit_ends_by_the_clock_and_an_open_one_is_in_the_next_run() -> None:
    async def story() -> None:
        await run_until(1000, {100: "ann", 700: "ann"})
        assert visits() == []
        await run_until(10_000, {1300: "ann", 1400: "bob"})

    Path("clicks.jsonl").touch()
    run_virtual(story())
    assert visits() == [("ann", 3, 20), ("bob", 1, 0)]
