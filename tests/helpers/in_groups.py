"""Operators run inside groups, on events that come at given times."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

from penstock import group_by, spread
from penstock.streams.testing import Probe


def each(*operators: Callable[[Any], Any], **options: Any) -> Any:
    """Group by the first character or item, run the operators in each group, and spread."""

    def inside(group: Any) -> Any:
        return group.pipe(*operators)

    grouped = group_by(0, each=inside, **{"idle": 60, **options})
    return lambda source: source.pipe(grouped, spread())


def read(source: Any, operator: Any, **options: Any) -> Probe[Any]:
    probe = Probe[Any](**{"request": 1000, **options})
    source.pipe(operator).connect(probe)
    return probe


async def at_times(items: list[tuple[float, Any]]) -> AsyncIterator[Any]:
    for at, item in items:
        await asyncio.sleep(at - asyncio.get_running_loop().time())
        yield item
