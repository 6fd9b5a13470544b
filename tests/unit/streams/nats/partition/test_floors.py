from __future__ import annotations

from typing import Any

import pytest

from penstock.streams.delivery.text import text_of
from penstock.streams.nats.partition.floors import Floors
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
        await floors.claim(2, "owner", 0, 3)
        assert (await Floors(table, "a", "today").read(2))[0].sequence == floor

    run_virtual(story())
