"""Clocks that are wrong, or are set while pollers run."""

from __future__ import annotations

import asyncio

import pytest

from streams import clock
from tests.table.outcome import Outcome, finish, numbered, prepare
from tests.table.poller import Orders, started

ROWS = 300


@pytest.mark.parametrize("by", [None, "key"])
@pytest.mark.parametrize("ahead", [-3600.0, 3600.0])
def test_pollers_whose_clocks_differ_by_an_hour_write_no_result_twice(
    tmp_path: object, ahead: float, by: str | None
) -> None:
    url = f"sqlite:///{tmp_path}/work.db"

    async def story() -> Outcome:
        await prepare(url, numbered(ROWS))
        with started(Orders(url, by, ahead=ahead, seconds=0.003)):
            return await finish(Orders(url, by, seconds=0.003, attempts=100))

    asyncio.run(story()).check(ROWS)


@pytest.mark.parametrize("jump", [-3600.0, 3600.0])
def test_a_clock_that_is_set_while_rows_are_worked_on_loses_none(
    database: str, jump: float, monkeypatch: pytest.MonkeyPatch
) -> None:

    async def set_the_clock() -> None:
        wall = clock.wall
        monkeypatch.setattr(clock, "wall", lambda: wall() + jump)

    async def story() -> Outcome:
        await prepare(database, numbered(ROWS))
        return await finish(Orders(database, seconds=0.003), set_the_clock)

    end = asyncio.run(story())
    end.check(ROWS)
    assert end.read["redelivered"] == end.stats.repeated
