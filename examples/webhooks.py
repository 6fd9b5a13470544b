"""The calls of a payment provider, each payment booked once: duplicates over three days.

    python -m examples.webhooks [--payments 1000] [--kills 3]
    penstock run examples/webhooks.py -- calls.jsonl payments.db

A provider that has no answer to a call repeats it, with longer and longer pauses, for three days.
The second command books the payments of a log of such calls in a table, each one once, and goes on
where it was when it is killed: the keys that were seen, the position in the log and the rows of the
table are in one file, and are written in one transaction.

The first command makes the log of six days in a temporary folder. After each day it runs the
second one, kills it with -9 some times, and prints what is there:

    day 1: 517 calls, 402 payments booked, 402 keys
    ...
    2,000 payments, each booked once: True
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

from penstock import Pipeline, Store, distinct_within, read_jsonl, write_table

DAY = 86_400
DAYS = 6
FIRST = 1_772_323_200  # 2026-03-01
# Seconds from a call without an answer to its repeat.
PAUSES = (60, 600, 3_600, 6 * 3_600, 24 * 3_600, 36 * 3_600)
LOST = 0.4  # the share of calls without an answer

# Without a unique index: it would hide a payment that is booked twice.
TABLE = "CREATE TABLE payments (id TEXT, account TEXT, cents INTEGER)"


def booking(calls: str, file: str) -> Pipeline:
    """The calls of a log, without the repeats, into a table."""
    database = f"sqlite:///{file}"
    store = Store(database)
    return (
        read_jsonl(calls, position=store)
        .pipe(distinct_within(3 * DAY, by="id", time="at", store=store))
        .to(write_table(database, "payments", columns=["id", "account", "cents"]))
    )


# The provider, and the days.


def calls_of(payments: int, draw: Random) -> Iterator[dict[str, Any]]:
    """All calls: payments come by day and by night, and some of their calls have no answer."""
    for number in range(payments):
        at = FIRST + draw.random() * (DAYS * DAY - sum(PAUSES)) * 0.999
        payment = {"id": f"pay_{number}", "account": f"a{draw.randrange(40)}"}
        payment["cents"] = draw.randrange(100, 20_000)
        yield {"at": at, **payment}
        for pause in PAUSES:
            if draw.random() >= LOST:
                break
            at += pause
            yield {"at": at, **payment}


def log_of_day(calls: list[dict[str, Any]], day: int) -> str:
    """The lines that the log gets in a day."""
    begin = FIRST + day * DAY
    return "".join(
        json.dumps({**call, "at": datetime.fromtimestamp(call["at"], UTC).isoformat()}) + "\n"
        for call in calls
        if begin <= call["at"] < begin + DAY
    )


def booked_in(file: Path) -> list[str]:
    """The ids of the payments in the table."""
    with closing(sqlite3.connect(file)) as database:
        return [id for (id,) in database.execute("SELECT id FROM payments")]


def keys_in(file: Path) -> int:
    """The number of ids that the store remembers."""
    with closing(sqlite3.connect(file)) as database:
        ((keys,),) = database.execute("SELECT count(*) FROM penstock_state")
    return int(keys)


def book(log: Path, file: Path, kills: int, draw: Random) -> None:
    """Run the pipeline to its end; before that, kill it some times."""
    command = [sys.executable, "-m", "penstock", "run", __file__, "--report", "none"]
    command += ["--", str(log), str(file)]
    for _ in range(kills):
        before = len(booked_in(file))
        running = subprocess.Popen(command)
        while running.poll() is None and len(booked_in(file)) == before:
            time.sleep(0.005)
        time.sleep(draw.random() / 20)
        running.kill()
        running.wait()
    subprocess.run(command, check=True)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Payments booked once, over six days.")
    parser.add_argument("--payments", type=int, default=1_000)
    parser.add_argument("--kills", type=int, default=3, help="of the first day's run (%(default)s)")
    options = parser.parse_args(arguments)
    draw = Random(1)
    calls = sorted(calls_of(options.payments, draw), key=lambda call: call["at"])
    with tempfile.TemporaryDirectory() as folder:
        log, file = Path(folder, "calls.jsonl"), Path(folder, "payments.db")
        with closing(sqlite3.connect(file)) as database:
            database.execute(TABLE)
        for day in range(DAYS):
            lines = log_of_day(calls, day)
            with log.open("a", encoding="utf-8") as end:
                end.write(lines)
            book(log, file, options.kills * (day == 0), draw)
            booked, keys = booked_in(file), keys_in(file)
            calls_today = lines.count("\n")
            print(
                f"day {day + 1}: {calls_today:,} calls; {len(booked):,} payments are booked, and "
                f"{keys:,} ids remembered"
            )
    once = sorted(booked) == sorted({call["id"] for call in calls})
    print(f"{options.payments:,} payments, {len(calls):,} calls; each payment booked once: {once}")


if __name__ == "__main__":
    main()
else:
    arguments = [*sys.argv[1:], "calls.jsonl", "payments.db"][:2]
    pipeline = booking(*arguments)
