"""Workers that begin at the same time take their shares when all are there."""

from __future__ import annotations

import asyncio
from math import inf
from typing import Any

from penstock import adaptive_flat_map, for_each, from_iterable, group_by, spread
from penstock.streams.nats.cluster.layout import layout_of
from penstock.streams.nats.cluster.worker import Worker

_PARTITIONS = 8


class _Roster:
    """The workers that are there, and which partitions somebody tried to take."""

    def __init__(self, *others: str) -> None:
        self.others = others
        self.tried: list[int] = []

    async def members(self) -> dict[str, Any]:
        return dict.fromkeys(self.others)

    async def take(self, partition: int, owner: bytes) -> None:
        self.tried.append(partition)


async def _tried(roster: _Roster, all_by: float) -> int:
    """How many partitions one of two workers that begin together tries to take."""
    grouped = from_iterable(list[Any]()).pipe(group_by("k"), spread())
    pipeline = grouped.pipe(adaptive_flat_map(str)).to(for_each(bool))
    nobody: Any = None
    worker: Any = Worker(
        nobody, layout_of(pipeline, "together", _PARTITIONS), pipeline, name="one", together=2
    )
    worker._roster, worker._all_by = roster, all_by
    await worker._share()
    return len(roster.tried)


def test_none_takes_partitions_before_all_are_there() -> None:
    assert asyncio.run(_tried(_Roster(), inf)) == 0


def test_each_takes_its_share_when_all_are_there() -> None:
    assert asyncio.run(_tried(_Roster("another"), inf)) == _PARTITIONS // 2


def test_one_that_the_others_do_not_join_in_time_takes_all() -> None:
    assert asyncio.run(_tried(_Roster(), -inf)) == _PARTITIONS
