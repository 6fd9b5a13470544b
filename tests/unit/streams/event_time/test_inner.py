"""The times of streams that are made while a pipeline runs: what is left of them at their ends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock import (
    Fixed,
    adaptive_flat_map,
    agg,
    collect,
    distinct_within,
    event_time,
    from_iterable,
    group_by,
    inbox,
    ops,
    spread,
    tumbling,
    window,
)
from penstock.streams.testing import run_virtual


@pytest.mark.parametrize("kind", ["flat_map", "shared", "slow", "group_by", "fails", "distinct"])
def test_nothing_is_kept_of_a_stream_that_has_ended(kind: str) -> None:
    shared = event_time("at", max_ahead=None)
    timed: Any = from_iterable([]).pipe(shared).info.timed
    kept: list[int] = []

    async def work(value: Any) -> Any:
        await asyncio.sleep(2)
        return value

    def inner(value: Any) -> Any:
        if kind == "distinct":
            return from_iterable([value, value]).pipe(shared, distinct_within(1, by="at"))
        timed = event_time("at", max_ahead=None) if kind == "flat_map" else shared
        events = [value, {"at": "soon"}] if kind == "fails" else [value]
        stages: list[Any] = [timed, window(tumbling(10), agg.count())]
        if kind == "slow":
            stages.insert(1, adaptive_flat_map(work, Fixed(2)))
        counts = from_iterable(events).pipe(*stages)
        return counts.pipe(ops.catch(from_iterable([]))) if kind == "fails" else counts

    async def main() -> None:
        box, found = inbox(1000), list[Any]()
        stages: list[Any] = [ops.flat_map(inner)]
        if kind == "group_by":
            stages = [group_by("at", each=lambda group: group.pipe(shared), idle=1), spread()]
        running = box.pipe(*stages).to(collect(found)).start()
        run = running._run
        for number in range(30):
            await box.put({"at": number})
            await asyncio.sleep(5)
            of_run = timed._of(run)
            kept.append(len(run.pauses.watchers))
            kept.append(len(of_run.sources) + len(of_run.readers))
        running.cancel()
        assert len(found) == (0 if kind == "fails" else 30)

    run_virtual(main())
    assert max(kept[40:]) <= max(kept[:10])
