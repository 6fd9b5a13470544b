"""Pollers that are killed or stopped: nothing is lost, and no result is written twice."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path

import pytest

from streams.table.analytics import measure
from tests.table.outcome import end_leases, finish, numbered, opened, prepare, until
from tests.table.poller import STEPS, Orders, Step, ended, started

ROWS = 200

# At which time of a step a poller dies, for how long it works on a row, and its lease.
WHEN: dict[Step, tuple[int, float, float]] = {
    "handling": (25, 0, 30),
    # A slow claim may be followed by one settlement of all rows.
    "writing": (1, 0.001, 30),
    "committed": (1, 0.001, 30),
    "renewing": (1, 0.05, 0.3),
}
OTHERWISE = (2, 0.001, 30.0)


@pytest.mark.parametrize("by", [None, "key"])
@pytest.mark.parametrize("step", STEPS)
def test_a_poller_killed_at_any_step_loses_nothing_and_nothing_is_done_twice(
    database: str, step: Step, by: str | None
) -> None:
    nth, seconds, lease = WHEN.get(step, OTHERWISE)
    doomed = Orders(database, by=by, dies=step, nth=nth, seconds=seconds, lease=lease)

    async def story() -> None:
        await prepare(database, numbered(ROWS))
        with started(doomed) as (poller,):
            assert await ended(poller) == -signal.SIGKILL
        async with opened(database) as store:
            held = (await measure(store, 60.0)).in_work
            await end_leases(store, by)
        end = await finish(Orders(database, by=by))
        end.check(ROWS)
        # What the dead one held was delivered again, and nothing else was.
        assert end.read["redelivered"] == end.stats.repeated == held

    asyncio.run(story())


@pytest.mark.parametrize("by", [None, "key"])
def test_what_a_poller_did_that_was_stopped_past_its_lease_is_void(
    database: str, by: str | None, tmp_path: Path
) -> None:
    async def story() -> None:
        # So few that nothing is being written when it stops: what stops while
        # it writes to a file of SQLite locks it.
        first, *others = numbered(10)
        await prepare(database, [{**first, "stop": str(tmp_path / "stopped")}, *others])
        report = tmp_path / "report"
        sleeper = Orders(*(database, by), lease=0.6, seconds=0.1, follow=False, report=str(report))
        with started(sleeper) as (poller,):

            async def expired() -> bool:
                async with opened(database) as store:
                    stats = await measure(store, 60.0)
                return stats.expired == stats.in_work > 0

            await until(expired)
            end = await finish(Orders(database, by=by))
            end.check(10)
            assert poller.pid is not None
            os.kill(poller.pid, signal.SIGCONT)
            assert await ended(poller) == 0
        told = json.loads(report.read_text())
        assert told["lost_leases"] == end.read["redelivered"] == end.stats.repeated > 0
        # It woke up with its results, and wrote none of them.
        (await finish(Orders(database, by=by))).check(10)

    asyncio.run(story())
