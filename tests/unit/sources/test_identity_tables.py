"""A row of a table is the same event for each reader, and one that has its id later is another."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest

from penstock import Fixed, adaptive_flat_map, read_table
from penstock.streams.protocol.identity import Identity
from penstock.streams.sql_queue import Store, open_store
from tests.helpers.identified import Found, identified


@asynccontextmanager
async def queue(database: str) -> AsyncGenerator[Store]:
    store = open_store(database, "queue")
    try:
        await store.open()
        yield store
    finally:
        await store.close()


def payloads(count: int) -> list[str]:
    return [f'{{"n": {n}}}' for n in range(count)]


async def read(database: str, fails_at: int | None = None) -> tuple[Found, str]:
    """The rows that were read up to one that fails, and the notes on its error."""
    found: Found = []

    async def handler(row: dict[str, Any]) -> int:
        if row["n"] == fails_at:
            raise ValueError(row)
        return int(row["n"])

    rows = read_table(database, "queue", follow=False)
    try:
        await rows.pipe(adaptive_flat_map(handler, Fixed(1))).to(identified(found)).run()
    except ValueError as error:
        return found, "".join(error.__notes__)
    return found, ""


def test_a_row_that_comes_again_is_the_same_event(database: str) -> None:
    async def work() -> None:
        async with queue(database) as store:
            await store.put(payloads(9))
            first, notes = await read(database, fails_at=4)
            second, _ = await read(database)
            assert [n for n, _ in first] == list(range(4))
            assert str(dict(second)[4]) in notes
            assert all(one.sequence == n + 1 for n, one in [*first, *second])
            assert len({one.partition for _, one in [*first, *second]}) == 1

    asyncio.run(work())


def test_a_row_whose_id_is_used_again_is_another_event(database: str) -> None:
    async def work() -> None:
        async with queue(database) as store:
            await store.put(payloads(2))
            first, _ = await read(database)
            if database.startswith("sqlite"):
                await store.query("DELETE FROM {table}")
                await store.query("DELETE FROM sqlite_sequence")
            else:
                await store.query("TRUNCATE {table} RESTART IDENTITY")
            await store.put(payloads(2))
            second, _ = await read(database)
            for (_, one), (_, other) in zip(first, second, strict=True):
                assert (one.partition, one.sequence) == (other.partition, other.sequence)
                assert one.generation != other.generation

    asyncio.run(work())


def test_identities_of_a_table_are_in_the_order_of_its_rows(database: str) -> None:
    async def work() -> None:
        async with queue(database) as store:
            for count in (1, 5, 2):
                await store.put(payloads(count))
            found, _ = await read(database)
            assert all(one < other for (_, one), (_, other) in pairwise(found))

    asyncio.run(work())


KILLED = """
import asyncio, sys
from penstock import adaptive_flat_map, Fixed, read_table
from tests.helpers.identified import identified

class Printed(list):
    def append(self, found):
        print(f"{found[0]} {found[1]}\\n", end="", flush=True)

async def handler(row):
    await asyncio.sleep(0.002)
    return row["n"]

rows = read_table(sys.argv[1], "queue", follow=False, lease=1)
asyncio.run(rows.pipe(adaptive_flat_map(handler, Fixed(4))).to(identified(Printed())).run())
"""


def test_a_row_has_one_identity_whenever_its_reader_is_killed(database: str) -> None:
    async def fill() -> None:
        async with queue(database) as store:
            await store.put(payloads(40))

    asyncio.run(fill())
    seen: dict[int, set[str]] = {}
    for until in (5, 11, 1000):
        command = [sys.executable, "-c", KILLED, database]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as reader:
            assert reader.stdout is not None
            for count, entry in enumerate(reader.stdout):
                number, identity = entry.split()
                seen.setdefault(int(number), set()).add(identity)
                if count == until:
                    reader.kill()
    assert sorted(seen) == list(range(40))
    assert all(len(identities) == 1 for identities in seen.values())


@pytest.mark.parametrize("url", ["sqlite:///./q.db", "sqlite:///q.db"])
def test_a_table_has_one_name_however_its_database_is_named(url: str, tmp_path: Any) -> None:
    from penstock.streams.sql_queue.url import place_of

    assert place_of(url, "queue") == place_of("sqlite:///q.db", "queue")
    one = "postgresql://ann:secret@db.example/shop"
    assert place_of(one, "queue") == "db.example:5432/shop/queue"
    assert Identity(place_of(one, "queue"), "", 3) < Identity(place_of(one, "queue"), "", 4)
