"""A process whose pipeline shares a stream, and gets SIGTERM."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import asyncio, json, os, signal
from penstock import Fixed, adaptive_flat_map, inbox, write_jsonl
from penstock.streams.runtime.os_signals import drain_on_signals

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
