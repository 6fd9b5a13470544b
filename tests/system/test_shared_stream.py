"""A process whose pipeline shares a stream, and gets SIGTERM."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import asyncio, json, os, signal
from penstock import Fixed, adaptive_flat_map, inbox, write_jsonl
from penstock.streams.runtime.process.os_signals import drain_on_signals

async def store(event):
    if event["n"] == 20:
        os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.sleep(0.002)
    return event

async def main():
    hooks = inbox(1000)
    shared = hooks.share()
    worked = shared.pipe(adaptive_flat_map(store, limit=Fixed(4)))
    running = worked.merge(shared).to(write_jsonl("out.jsonl")).start()
    with drain_on_signals(running, 20.0):
        for n in range(300):
            await hooks.put({"n": n})
        report = await running.wait()
    numbers = report.statistics
    print(json.dumps([numbers["in"], numbers["finished"], report.exit_status]))

asyncio.run(main())
"""


def test_sigterm_finishes_every_accepted_event_of_a_shared_stream(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [300, 300, 4]
    stored = [json.loads(line)["n"] for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert sorted(stored) == sorted([*range(300)] * 2)


# Reads a file, and gets SIGTERM in the middle of it.
FILE = """
import asyncio, os, signal
from penstock import Fixed, adaptive_flat_map, ops, read_jsonl, write_jsonl

async def work(event):
    if event["n"] == 20:
        os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.sleep(0.002)
    return event

events = read_jsonl("events.jsonl")
worked = adaptive_flat_map(work, limit=Fixed(4))
SHAPE
"""
SHAPES = {
    "without share": "stream = events.pipe(worked)",
    "one reader": "stream = events.pipe(ops.share(), worked)",
    "two readers": "both = events.pipe(ops.share())\nstream = both.pipe(worked, ops.merge(both))",
    "zip": "stream = events.pipe(worked, ops.zip(read_jsonl('events.jsonl')), ops.map(list))",
}
MANY = 20_000


@pytest.mark.parametrize("name", SHAPES)
def test_sigterm_below_a_share_does_what_it_does_without(name: str, tmp_path: Path) -> None:
    lines = "".join(f'{{"n": {n}}}\n' for n in range(MANY))
    (tmp_path / "events.jsonl").write_text(lines)
    program = FILE.replace("SHAPE", SHAPES[name])
    (tmp_path / "job.py").write_text(f"{program}pipeline = stream.to(write_jsonl())\n")
    command = [sys.executable, "-m", "penstock", "run", "job.py", "--report", "json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    report = json.loads(done.stderr.splitlines()[-1])
    numbers = report["statistics"]
    results = [json.loads(line) for line in done.stdout.splitlines()]
    # It has stopped reading, and what it had read is finished.
    assert numbers["in"] < MANY
    assert (numbers["failed"], numbers["unfinished"]) == (0, 0)
    if name == "zip":
        # The lines that were read for partners that did not come.
        assert (done.returncode, report["outcome"]) == (5, "incomplete")
        assert numbers["in"] == numbers["finished"] + numbers["returned"]
        assert len(results) * 2 == numbers["finished"]
        return
    assert (done.returncode, report["outcome"]) == (4, "drained")
    assert (numbers["finished"], numbers["returned"]) == (numbers["in"], 0)
    times = 2 if name == "two readers" else 1
    assert sorted(each["n"] for each in results) == sorted([*range(numbers["in"])] * times)
