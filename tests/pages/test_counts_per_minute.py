"""The how-to of counts per minute: its program is killed, and its table is right."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import psycopg

from tests.pages.test_docs import HOME, blocks_of

ORDERS = 10_000
TABLE = """CREATE TABLE orders_per_minute
    (minute timestamptz, product text, orders integer, PRIMARY KEY (minute, product))"""


def test_the_counts_are_those_of_the_lines_however_often_it_is_killed(
    postgres: str, tmp_path: Path
) -> None:
    page = (HOME / "docs/how-to/counts-per-minute.md").read_text(encoding="utf-8")
    program = next(one.code for one in blocks_of(page) if one.language == "python")
    # The last run closes all minutes and ends.
    program = program.replace("follow=True", "follow=False")
    (tmp_path / "counts.py").write_text(program, encoding="utf-8")
    draw = random.Random(4)
    orders = [
        {"at": f"2026-03-01T09:{n * 7 // ORDERS:02}:01", "product": draw.choice(["tea", "milk"])}
        for n in range(ORDERS)
    ]
    lines = "".join(json.dumps(order) + "\n" for order in orders)
    (tmp_path / "orders.jsonl").write_text(lines, encoding="utf-8")
    wanted = Counter(
        (datetime.fromisoformat(order["at"][:16]).replace(tzinfo=UTC), order["product"])
        for order in orders
    )
    with psycopg.connect(postgres, autocommit=True) as database:
        database.execute(TABLE)

        def counted() -> int:
            text = "SELECT coalesce(sum(orders), 0) FROM orders_per_minute"
            ((found,),) = database.execute(text).fetchall()
            return int(found)

        kills, status = 0, None
        while status != 0:
            process = subprocess.Popen(
                [sys.executable, "-m", "penstock", "run", "counts.py", "--report", "none"],
                cwd=tmp_path,
                env={**os.environ, "DATABASE": postgres},
            )
            before = counted()
            while (status := process.poll()) is None and counted() == before:
                time.sleep(0.001)
            if status is None and kills < 2:
                time.sleep(draw.random() / 50)
                process.kill()
                kills += 1
            status = process.wait(30)
            # Of a commit that the server goes on with.
            time.sleep(0.1)
        found = database.execute("SELECT minute, product, orders FROM orders_per_minute").fetchall()
    assert kills == 2
    assert {(minute, product): count for minute, product, count in found} == wanted
