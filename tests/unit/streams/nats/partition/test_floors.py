from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock.streams.delivery.text import text_of
from penstock.streams.nats.cluster.lease_entry import take
from penstock.streams.nats.partition.floors import Floors, Mark
from penstock.streams.testing import run_virtual
from tests.helpers.nats.model import Table

BODY = '{"floor":7,"stored":0,"owner":""}'


@pytest.mark.parametrize(
    ("about", "floor"),
    [(("a", 2, "today"), 7), (("a", 1, "today"), 0), (("a", 0, "today"), 0), (("a", 2), 0)],
)
def test_a_floor_counts_for_the_partition_it_was_written_for(
    about: tuple[str | int, ...], floor: int
) -> None:
    async def story() -> None:
        table: Any = Table()
        await table.update("p.2", text_of(about, BODY).encode(), 0)
        floors = Floors(table, "a", "today")
        assert (await floors.read(2))[0].sequence == floor
        # And what an owner writes, the next one reads.
        await floors.claim(2, "owner", 0)
        assert (await Floors(table, "a", "today").read(2))[0].sequence == floor

    run_virtual(story())


@pytest.mark.parametrize("away", [1, 30])
def test_a_floor_that_rises_while_servers_have_no_quorum_is_written_when_they_have_one(
    away: int,
) -> None:
    async def story() -> None:
        table: Any = Table()
        floors = Floors(table, "a", "today")
        floors.start()
        floor = await floors.claim(0, "me", 0)
        table.has_quorum = False
        for second in range(1, away + 1):
            floor.rise(Mark(second))
            await asyncio.sleep(1)
        table.agree()
        await asyncio.sleep(5)
        assert floor.known == Mark(away)
        assert table.floor == away
        # Until another owner has it.
        await Floors(table, "a", "today").claim(0, "other", 0)
        floor.rise(Mark(away + 1))
        await asyncio.sleep(5)
        assert table.floor == away
        await floors.stop()

    run_virtual(story())


def test_a_lease_whose_renewal_is_under_way_is_held_until_its_deadline_and_renewed_then() -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        table: Any = Table()
        table.create = lambda key, value: table.update(key, value, 0)
        lease = await take(table, "p.0", b"me", 10.0, loop.time)
        assert lease is not None
        until = lease.until
        table.has_quorum = False
        with pytest.raises(TimeoutError):
            await lease.write(10.0)
        await lease.write(10.0)
        assert lease.held
        assert lease.until == until
        table.agree()
        await lease.write(10.0)
        await lease.write(10.0)
        assert lease.until > until

    run_virtual(story())
