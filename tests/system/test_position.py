"""A reader of a file that is killed again and again, at any instant."""

from __future__ import annotations

import gzip
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path

LINES = 60_000
AT_ONCE = 16
KILLS = 34  # of one run; three runs make 100
FILE_KILLS = 50
FILE_LINES = 30_000  # of ten files together: most of the kills are spread over these

PIPELINE = """
import asyncio
import os
import random
import sys

from penstock import adaptive_flat_map
from penstock import for_each
from penstock import read_lines
from penstock import Fixed

FILE, PLACE, LOG, AT_ONCE = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
log = os.open(LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT)


async def handler(line):
    os.write(log, f"begun {line}\\n".encode())
    await asyncio.sleep(random.random() / 500)
    return line


def done(line):
    os.write(log, f"done {line}\\n".encode())


pipeline = (
    read_lines(FILE, position=PLACE)
    .pipe(adaptive_flat_map(handler, Fixed(AT_ONCE), window=AT_ONCE))
    .to(for_each(done))
)
"""


def entries(log: Path) -> list[tuple[str, str]]:
    """The recorded entries, in order; a kill may cut off the last one."""
    text = log.read_text() if log.exists() else ""
    return [(what, line) for what, _, line in (row.partition(" ") for row in text.splitlines())]


def test_kills_lose_no_line_and_repeat_only_what_was_in_flight(
    tmp_path: Path, run_seed: int
) -> None:
    draw = random.Random(run_seed)
    pipeline, file, place, log = (
        tmp_path / name for name in ("job.py", "some.log", "some.position", "events.txt")
    )
    pipeline.write_text(PIPELINE)
    file.write_text("".join(f"{n}\n" for n in range(LINES)))
    command = [
        *(sys.executable, "-m", "penstock", "run", str(pipeline), "--report", "none", "--"),
        *(str(file), str(place), str(log), str(AT_ONCE)),
    ]

    for kill in range(KILLS):
        before = entries(log)
        running = subprocess.Popen(command)
        while len(entries(log)) == len(before):
            assert running.poll() is None
            time.sleep(0.005)
        time.sleep(draw.random() * 0.1)
        running.send_signal(signal.SIGKILL)
        running.wait()
        done = {line for what, line in before if what == "done"}
        repeated = {line for _, line in entries(log)[len(before) :]} & {line for _, line in before}
        # Of what was worked on no more can be repeated, nor of what the sink had taken before the
        # position was written: a place for a call is used once in a loop iteration.
        assert len(repeated - done) <= AT_ONCE, (run_seed, kill)
        assert len(repeated & done) <= AT_ONCE, (run_seed, kill)

    subprocess.run(command, check=True, timeout=300)
    finished = Counter(line for what, line in entries(log) if what == "done")
    assert set(finished) == {str(n) for n in range(LINES)}
    assert sum(finished.values()) - LINES <= KILLS * AT_ONCE


SEVERAL = """
import asyncio
import os
import random
import sys

from penstock import adaptive_flat_map, Fixed, for_each, read_lines

FILES, PLACES, LOG, AT_ONCE = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
log = os.open(LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT)


async def handler(line):
    os.write(log, f"begun {line}\\n".encode())
    await asyncio.sleep(random.random() / 125)
    return line


def done(line):
    os.write(log, f"done {line}\\n".encode())


pipeline = (
    read_lines(FILES, position=PLACES, order="time")
    .pipe(adaptive_flat_map(handler, Fixed(AT_ONCE), window=AT_ONCE))
    .to(for_each(done))
)
"""


def rotated_once(logs: Path) -> None:
    """Give each file the number after its own, the last one too."""
    numbers = [int(path.name.split(".")[2]) for path in logs.iterdir()]
    for number in sorted(numbers, reverse=True):
        (logs / f"app.log.{number}.gz").rename(logs / f"app.log.{number + 1}.gz")


def test_kills_lose_no_line_of_ten_compressed_files_that_are_rotated_meanwhile(
    tmp_path: Path, run_seed: int
) -> None:
    draw = random.Random(run_seed)
    logs, log = tmp_path / "logs", tmp_path / "events.txt"
    logs.mkdir()
    pipeline = tmp_path / "job.py"
    pipeline.write_text(SEVERAL)
    command = [
        *(sys.executable, "-m", "penstock", "run", str(pipeline), "--report", "none", "--"),
        *(str(logs / "app.log.*.gz"), str(tmp_path / "places"), str(log), str(AT_ONCE)),
    ]
    lines = [f"{n}" for n in range(FILE_LINES)]
    for number in range(10):
        if number:
            rotated_once(logs)
        # Members of one file, some of which end within a line.
        text = "".join(f"{line}\n" for line in lines[number::10]).encode()
        cut = draw.randrange(len(text))
        newest = logs / "app.log.1.gz"
        newest.write_bytes(gzip.compress(text[:cut]) + gzip.compress(text[cut:]))
        os.utime(newest, (1_700_000_000 + number, 1_700_000_000 + number))

    for kill in range(FILE_KILLS):
        before = entries(log)
        running = subprocess.Popen(command)
        while running.poll() is None and len(entries(log)) == len(before):
            time.sleep(0.005)
        if running.poll() is not None:
            # On a busy machine it may be done before the last kill.
            assert running.returncode == 0
            assert kill > FILE_KILLS // 2
            break
        time.sleep(draw.random() * 0.1)
        running.send_signal(signal.SIGKILL)
        running.wait()
        if draw.random() < 0.2:
            rotated_once(logs)
        done = {line for what, line in before if what == "done"}
        repeated = {line for _, line in entries(log)[len(before) :]} & {line for _, line in before}
        assert len(repeated - done) <= AT_ONCE, (run_seed, kill)
        assert len(repeated & done) <= AT_ONCE, (run_seed, kill)

    subprocess.run(command, check=True, timeout=300)
    finished = Counter(line for what, line in entries(log) if what == "done")
    assert set(finished) == set(lines)
    assert sum(finished.values()) - FILE_LINES <= FILE_KILLS * AT_ONCE


ROTATED = """
import os
import sys

from penstock import adaptive_flat_map, Fixed, for_each, read_lines

FILE, PLACE, LOG, AT_ONCE = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
log = os.open(LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT)


async def handler(line):
    return line


def done(line):
    os.write(log, f"done {line}\\n".encode())


pipeline = (
    read_lines(FILE, position=PLACE, follow=True)
    .pipe(adaptive_flat_map(handler, Fixed(AT_ONCE), window=AT_ONCE))
    .to(for_each(done))
)
"""


class Rotating:
    """A program that logs numbers, and what rotates its log, in the ways that there are."""

    def __init__(self, file: Path, draw: random.Random) -> None:
        self._file = file
        self._draw = draw
        self._log = file.open("a")
        self._dated = draw.random() < 0.5
        self.written = self.rotations = 0

    def close(self) -> None:
        self._log.close()

    def write(self) -> None:
        for _ in range(self._draw.randrange(1, 200)):
            self._log.write(f"{self.written}\n")
            self.written += 1
        self._log.flush()

    def rotate(self) -> None:
        """Rename the log and, some time later, create the next one, and then open that."""
        self.rotations += 1
        if self._dated:
            self._file.rename(f"{self._file}-{20260000 + self.rotations}")
        else:
            for number in range(self.rotations - 1, 0, -1):
                Path(f"{self._file}.{number}").rename(f"{self._file}.{number + 1}")
            self._file.rename(f"{self._file}.1")
        self.write()
        time.sleep(self._draw.choice([0, 0, 0.4]))
        self._file.touch()
        self.write()
        time.sleep(self._draw.choice([0, 0.4]))
        self._log.close()
        self._log = self._file.open("a")
        self.write()


def test_kills_around_rotations_lose_no_line_and_repeat_only_what_was_in_flight(
    tmp_path: Path, run_seed: int
) -> None:
    draw = random.Random(run_seed)
    pipeline, file, place, log = (
        tmp_path / name for name in ("job.py", "some.log", "some.position", "events.txt")
    )
    pipeline.write_text(ROTATED)
    command = [
        *(sys.executable, "-m", "penstock", "run", str(pipeline), "--report", "none", "--"),
        *(str(file), str(place), str(log), str(AT_ONCE)),
    ]
    kills = 5
    program = Rotating(file, draw)
    program.write()
    running = subprocess.Popen(command)
    while not entries(log):
        assert running.poll() is None
        time.sleep(0.01)
    for kill in range(kills):
        time.sleep(draw.choice([0.1, 1, 6.5]))
        program.write()
        alive, dead = draw.choice([(0, 1), (1, 0), (1, 2), (2, 1), (0, 3)])
        for _ in range(alive):
            program.rotate()
        time.sleep(draw.choice([0, 0.3, 1]))
        assert running.poll() is None, (run_seed, kill)
        running.send_signal(signal.SIGKILL)
        running.wait()
        for _ in range(dead):
            program.write()
            program.rotate()
        running, before = subprocess.Popen(command), len(entries(log))
        program.write()
        if draw.random() < 0.7:
            while len(entries(log)) == before:
                time.sleep(0.01)

    wanted = {str(n) for n in range(program.written)}
    deadline = time.monotonic() + 60 + 6 * program.rotations
    while wanted - {line for _, line in entries(log)} and time.monotonic() < deadline:
        assert running.poll() is None, run_seed
        time.sleep(0.2)
    running.terminate()
    assert running.wait(30) == 4  # drained by a signal
    program.close()
    finished = [int(line) for _, line in entries(log)]
    assert set(map(str, finished)) == wanted, run_seed
    assert len(finished) - program.written <= kills * AT_ONCE, run_seed
    # A number is smaller than the one before only where a run began again.
    assert sum(one > other for one, other in pairwise(finished)) <= kills, run_seed
