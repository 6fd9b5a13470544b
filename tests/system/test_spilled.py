"""A pipeline whose slow key waits in a temporary file, and which is killed or cancelled then."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

LINES = 1_500
KILLS = 6
AT_ONCE = 4

PIPELINE = """
import asyncio
import os
import sys

from penstock import Fixed, adaptive_flat_map, for_each, group_by, read_jsonl, spread

FILE, PLACE, LOG = sys.argv[1:]
log = os.open(LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
os.write(log, b"started - 0\\n")


async def handler(event):
    os.write(log, f"begun {event['key']} {event['n']}\\n".encode())
    await asyncio.sleep(0.003 if event["key"] == "hot" else 0.0005)
    return event


def done(event):
    os.write(log, f"done {event['key']} {event['n']}\\n".encode())


pipeline = (
    read_jsonl(FILE, position=PLACE)
    .pipe(group_by("key", buffer=64, share=16), spread(), adaptive_flat_map(handler, Fixed(4)))
    .to(for_each(done))
)
"""


def entries(log: Path) -> list[list[tuple[str, str, int]]]:
    """What was recorded, of each process; a kill may cut off the last entry."""
    runs: list[list[tuple[str, str, int]]] = []
    for row in log.read_text().splitlines() if log.exists() else ():
        what, key, n = row.split(" ")
        if what == "started":
            runs.append([])
        else:
            runs[-1].append((what, key, int(n)))
    return runs


def bytes_spilled(process: int) -> int:
    """The size of the temporary file of a process, which has no name any more."""
    folder = Path(f"/proc/{process}/fd")
    for descriptor in folder.iterdir():
        try:
            if ".spill" in os.readlink(descriptor):
                return descriptor.stat().st_size
        except FileNotFoundError:
            pass
    return 0


class Job:
    def __init__(self, folder: Path, seed: int) -> None:
        self.draw = random.Random(seed)
        self.log = folder / "events.txt"
        self.temporary = folder / "temporary"
        self.temporary.mkdir()
        pipeline, file, place = (folder / name for name in ("job.py", "in.jsonl", "in.position"))
        pipeline.write_text(PIPELINE)
        keys = ["hot"] * 6 + ["a", "b", "c", "d"]
        self.events = [(self.draw.choice(keys), n) for n in range(LINES)]
        file.write_text("".join(f'{{"key": "{key}", "n": {n}}}\n' for key, n in self.events))
        self.command = [
            *(sys.executable, "-m", "penstock", "run", str(pipeline), "--report", "none", "--"),
            *(str(file), str(place), str(self.log)),
        ]
        self.environment = {**os.environ, "TMPDIR": str(self.temporary)}

    def until_spilled(self) -> subprocess.Popen[bytes]:
        """A process that has events of the slow key in its file."""
        before = len(entries(self.log))
        running = subprocess.Popen(
            self.command, env=self.environment, stderr=subprocess.DEVNULL, process_group=0
        )
        while bytes_spilled(running.pid) < 10_000 or len(entries(self.log)) == before:
            assert running.poll() is None
            time.sleep(0.005)
        time.sleep(self.draw.random() * 0.15)
        return running

    def finish(self) -> None:
        subprocess.run(
            self.command,
            env=self.environment,
            check=True,
            timeout=120,
            stderr=subprocess.DEVNULL,
        )

    def check(self) -> None:
        """No file is left, and each key's events began in their order in every process."""
        assert list(self.temporary.iterdir()) == []
        for run in entries(self.log):
            begun: dict[str, list[int]] = defaultdict(list)
            for what, key, n in run:
                if what == "begun":
                    begun[key].append(n)
            for key, numbers in begun.items():
                assert numbers == sorted(set(numbers)), key

    def check_whole(self) -> None:
        """No event is lost, and each key's events were first done in their order."""
        self.check()
        done = {
            (key, n): None for run in entries(self.log) for what, key, n in run if what == "done"
        }
        assert set(done) == set(self.events)
        of_key: dict[str, list[int]] = defaultdict(list)
        for key, n in done:
            of_key[key].append(n)
        for key, numbers in of_key.items():
            assert numbers == sorted(numbers), key


def test_kills_lose_nothing_that_waits_on_the_disk_and_leave_no_file(
    tmp_path: Path, run_seed: int
) -> None:
    job = Job(tmp_path, run_seed)
    for _ in range(KILLS):
        running = job.until_spilled()
        running.send_signal(signal.SIGKILL)
        running.wait()
        job.check()
    job.finish()
    job.check_whole()


def test_a_cancel_returns_what_waits_on_the_disk_and_the_next_run_does_it(
    tmp_path: Path, run_seed: int
) -> None:
    job = Job(tmp_path, run_seed)
    for _ in range(KILLS):
        running = job.until_spilled()
        # The first signal drains, which may end before the second.
        running.send_signal(signal.SIGINT)
        time.sleep(job.draw.random() * 0.05)
        running.send_signal(signal.SIGINT)
        assert running.wait(30) != 0
        job.check()
    job.finish()
    job.check_whole()


def test_a_drain_does_what_waits_on_the_disk_and_the_next_run_does_the_rest(
    tmp_path: Path, run_seed: int
) -> None:
    job = Job(tmp_path, run_seed)
    running = job.until_spilled()
    running.send_signal(signal.SIGINT)
    running.wait(60)
    (run,) = entries(job.log)
    assert {entry[1:] for entry in run if entry[0] == "begun"} == {
        entry[1:] for entry in run if entry[0] == "done"
    }
    job.finish()
    job.check_whole()
    seen = [entry[1:] for run in entries(job.log) for entry in run if entry[0] == "done"]
    assert sorted(seen) == sorted(job.events)
