"""A reader of an object, through fsspec, that is killed again and again."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

LINES = 20_000
AT_ONCE = 16
KILLS = 8

PIPELINE = """
import asyncio
import os
import random
import sys

from penstock import Fixed, adaptive_flat_map, for_each, read_lines

URL, PLACE, LOG, AT_ONCE = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
log = os.open(LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT)


async def handler(line):
    await asyncio.sleep(random.random() / 500)
    return line


def done(line):
    os.write(log, f"{line}\\n".encode())


pipeline = (
    read_lines(URL, position=PLACE)
    .pipe(adaptive_flat_map(handler, Fixed(AT_ONCE), window=AT_ONCE))
    .to(for_each(done))
)
"""


def test_kills_lose_no_line_of_an_object_and_repeat_only_what_was_in_flight(
    tmp_path: Path, run_seed: int
) -> None:
    draw = random.Random(run_seed)
    pipeline, file, place, log = (
        tmp_path / name for name in ("job.py", "some.log", "some.position", "lines.txt")
    )
    pipeline.write_text(PIPELINE)
    file.write_text("".join(f"{n}\n" for n in range(LINES)))
    log.touch()
    command = [
        *(sys.executable, "-m", "penstock", "run", str(pipeline), "--report", "none", "--"),
        *(file.as_uri(), str(place), str(log), str(AT_ONCE)),
    ]
    for kill in range(KILLS):
        before = os.path.getsize(log)
        running = subprocess.Popen(command)
        while os.path.getsize(log) == before:
            assert running.poll() is None, (run_seed, kill)
            time.sleep(0.005)
        time.sleep(draw.random() * 0.1)
        running.send_signal(signal.SIGKILL)
        running.wait()
        assert os.path.getsize(log) < os.path.getsize(file) // 2, "killed before its end"
    subprocess.run(command, check=True, timeout=300)
    finished = Counter(log.read_text().split())
    assert set(finished) == {str(n) for n in range(LINES)}
    assert sum(finished.values()) - LINES <= KILLS * AT_ONCE
