"""A reader of a file that is killed again and again, at any instant."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

LINES = 60_000
AT_ONCE = 16
KILLS = 34  # of one run; three runs make 100

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
