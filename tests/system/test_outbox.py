"""A reader of an outbox that is killed again and again while transactions overlap."""

from __future__ import annotations

import random
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psycopg

PAGE = Path(__file__).parents[2] / "docs/how-to/tables.md"
KILLS, WRITERS = 5, 4

PIPELINE = """
import os
import sys

from penstock import for_each, read_table

URL, PLACE, LOG = sys.argv[1:4]
log = os.open(LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

pipeline = read_table(
    URL, "outbox", from_id="id", position=PLACE, poll=0.05, follow=len(sys.argv) < 5
).to(for_each(lambda row: os.write(log, f"{row['after']['n']} {row['id']}\\n".encode())))
"""


def statements_of_the_page() -> str:
    """What the page says for PostgreSQL."""
    (found,) = re.findall(r"```text\n(CREATE TABLE outbox.*?)```", PAGE.read_text(), re.DOTALL)
    return str(found)


def seen(log: Path) -> list[int]:
    lines = log.read_text().splitlines() if log.exists() else []
    return [int(line.split()[0]) for line in lines]


def test_kills_lose_no_message_of_transactions_that_overlap(
    postgres: str, tmp_path: Path, run_seed: int
) -> None:
    draw = random.Random(run_seed)
    with psycopg.connect(postgres, autocommit=True) as db:
        db.execute("CREATE TABLE accounts (id bigserial PRIMARY KEY, n integer)")
        db.execute(statements_of_the_page().encode())
    pipeline, place, log = (tmp_path / name for name in ("job.py", "position", "log"))
    pipeline.write_text(PIPELINE)
    command = [
        *(sys.executable, "-m", "penstock", "run", str(pipeline), "--report", "none", "--"),
        *(postgres, str(place), str(log)),
    ]
    committed: set[int] = set()
    ends = threading.Event()

    def write(writer: int) -> None:
        rng = random.Random(f"{run_seed} {writer}")
        n = writer
        with psycopg.connect(postgres) as db:
            while not ends.is_set():
                new: list[int] = []
                for _ in range(rng.randrange(1, 4)):
                    db.execute("INSERT INTO accounts (n) VALUES (%s)", [n])
                    new.append(n)
                    n += WRITERS
                    time.sleep(rng.random() * 0.02)
                if rng.random() < 0.2:
                    db.rollback()
                else:
                    db.commit()
                    committed.update(new)

    writers = [threading.Thread(target=write, args=[n]) for n in range(WRITERS)]
    for one in writers:
        one.start()
    try:
        for _ in range(KILLS):
            before = len(seen(log))
            running = subprocess.Popen(command)
            while len(seen(log)) == before:
                assert running.poll() is None
                time.sleep(0.01)
            time.sleep(draw.random() * 0.3)
            running.send_signal(signal.SIGKILL)
            running.wait()
    finally:
        ends.set()
        for one in writers:
            one.join()
    subprocess.run([*command, "end"], check=True, timeout=120)
    found = seen(log)
    assert set(found) == committed
    # Each time only what was not in the position yet.
    assert len(found) - len(committed) <= KILLS * 500
