"""A run that is killed without a chance to clean up leaves nothing behind."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc to find processes")

# Seconds after which something will not happen any more, even on a slow machine.
_PATIENCE = 90.0

PIPELINE = """
import asyncio
from penstock import adaptive_flat_map, distinct_within, group_by, spread
from penstock import write_jsonl
from penstock import read_jsonl

async def work(event):
    await asyncio.sleep(0.02)
    return event

pipeline = (
    read_jsonl()
    .pipe(distinct_within(600, by="id"), group_by("key"), spread(), adaptive_flat_map(work))
    .to(write_jsonl())
)
"""

IN_PROCESSES = """
import time
from penstock import adaptive_flat_map, in_processes
from penstock import write_jsonl
from penstock import read_jsonl

def work(event):
    time.sleep(0.02)
    return event

pipeline = read_jsonl().pipe(adaptive_flat_map(in_processes(2)(work))).to(write_jsonl())
"""


def key_of(number: int) -> int:
    return number % 20


class Runs:
    """Runs of the command in a folder, and all their processes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._mark = uuid4().hex
        self.said = folder / "said"
        self._started: list[subprocess.Popen[bytes]] = []
        (folder / "pipe.py").write_text(PIPELINE, encoding="utf-8")
        (folder / "in_processes.py").write_text(IN_PROCESSES, encoding="utf-8")

    def give(self, count: int) -> None:
        events = ({"id": i, "key": f"key {key_of(i)}"} for i in range(count))
        text = "".join(json.dumps(event) + "\n" for event in events)
        (self._folder / "in.jsonl").write_text(text, encoding="utf-8")

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        # A file: a pipe would be open for as long as an orphan exists.
        self.said = self._folder / f"{len(self._started)}.err"
        with open(self.said, "wb") as errors:
            running = subprocess.Popen(
                [sys.executable, "-m", "penstock", "run", *words],
                cwd=self._folder,
                env={
                    **os.environ,
                    "PYTHONPATH": os.getcwd(),
                    "PENSTOCK_TEST": self._mark,
                },
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
            )
        self._started.append(running)
        return running

    def clean(self) -> None:
        for running in self._started:
            running.kill()
            running.wait(_PATIENCE)
        for process in self.processes():
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)

    def processes(self) -> dict[int, str]:
        """Those that are alive, with their command lines, by what they have inherited."""
        mark = f"PENSTOCK_TEST={self._mark}".encode()
        found: dict[int, str] = {}
        for place in Path("/proc").iterdir():
            try:
                if place.name.isdigit() and mark in (place / "environ").read_bytes():
                    found[int(place.name)] = (place / "cmdline").read_text().replace("\0", " ")
            except OSError:
                continue
        return found

    def wait_for(self, *parts: str) -> None:
        """Until there are processes with these in their command lines."""

        def there() -> bool:
            lines = self.processes().values()
            return all(any(part in line for line in lines) for part in parts)

        assert _eventually(there), self.processes()

    def output(self) -> list[int]:
        path = self._folder / "out.jsonl"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        return [json.loads(line)["id"] for line in lines]


def _eventually(true: Callable[[], bool]) -> bool:
    until = time.monotonic() + _PATIENCE
    while not true():
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Runs]:
    runs = Runs(tmp_path)
    yield runs
    runs.clean()


WORKERS = ("pipe.py", "--workers", "2", "--input", "in.jsonl", "--output", "out.jsonl")


def test_nothing_outlives_a_run_with_workers_that_is_killed_at_any_moment(
    runs: Runs, run_seed: int
) -> None:
    chance = random.Random(run_seed)
    runs.give(20_000)
    running = runs.start(*WORKERS)
    time.sleep(chance.uniform(0, 2))
    running.kill()
    running.wait(_PATIENCE)
    assert _eventually(lambda: not runs.processes()), runs.processes()


def test_nothing_outlives_a_run_with_processes_that_is_killed(runs: Runs, run_seed: int) -> None:
    chance = random.Random(run_seed)
    runs.give(20_000)
    running = runs.start("in_processes.py", "--input", "in.jsonl", "--output", "out.jsonl")
    runs.wait_for("spawn_main", "resource_tracker")
    time.sleep(chance.uniform(0, 1))
    running.kill()
    running.wait(_PATIENCE)
    assert _eventually(lambda: not runs.processes()), runs.processes()


@pytest.mark.parametrize("signals", [1, 2])
def test_a_signal_to_a_run_with_workers_drains_it_with_status_4_and_two_cancel_it_with_5(
    runs: Runs, signals: int
) -> None:
    runs.give(2_000)
    running = runs.start(*WORKERS)
    assert _eventually(lambda: bool(runs.output()))
    for _ in range(signals):
        running.send_signal(signal.SIGINT)
        time.sleep(0.3)
    running.wait(_PATIENCE)
    if signals == 1:
        assert running.returncode == 4, runs.said.read_text()
    else:
        assert running.returncode == 5, runs.said.read_text()
    assert not runs.processes()
