"""The example on virtual time, with a file that grows."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock.command.pipelines.load import load_module
from penstock.streams.testing import run_virtual

EXAMPLE = Path(__file__).parents[3] / "examples" / "devices.py"


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)


def sent(device: str, second: int) -> None:
    with open("readings.jsonl", "a", encoding="utf-8") as file:
        file.write(json.dumps({"device": device, "at": second}) + "\n")


def alarms() -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path("alarms.jsonl").read_text("utf-8").splitlines()]


async def run_for(seconds: float, readings: dict[int, str]) -> None:
    """Run the example; meanwhile devices send readings, after some seconds."""
    sys.modules.pop("devices", None)
    names = ["readings.jsonl", "alarms.jsonl", "devices.db"]
    running = load_module(str(EXAMPLE), names, "pipeline").pipeline.start()
    begin = asyncio.get_running_loop().time()
    for second, device in readings.items():
        await asyncio.sleep(begin + second - asyncio.get_running_loop().time())
        sent(device, second)
    await asyncio.sleep(begin + seconds - asyncio.get_running_loop().time())
    await running.drain()


def test_an_alarm_is_raised_for_a_silent_device_and_taken_back() -> None:
    sent("boiler", 0)
    sent("pump", 0)
    run_virtual(run_for(100, {20: "pump", 40: "boiler", 41: "pump"}))
    first, back, *silent = alarms()
    assert first == {"device": "boiler", "alarm": True, "since": 0, "readings": 1}
    assert back == {"device": "boiler", "alarm": False, "at": 40}
    assert {(one["device"], one["since"], one["readings"]) for one in silent} == {
        ("boiler", 40, 2),
        ("pump", 41, 3),
    }


def test_a_device_that_fell_silent_between_two_runs_raises_one_unless_it_has_sent() -> None:
    async def story() -> None:
        sent("boiler", 0)
        sent("pump", 0)
        await run_for(10, {})
        await asyncio.sleep(100)
        sent("pump", 105)
        await run_for(20, {})

    run_virtual(story())
    assert [one["device"] for one in alarms()] == ["boiler"]
