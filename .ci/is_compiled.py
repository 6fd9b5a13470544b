"""Runs a pipeline on the installed library, which must be compiled."""

from __future__ import annotations

import asyncio

from penstock import (
    Fixed,
    adaptive_flat_map,
    collect,
    distinct_within,
    from_iterable,
    group_by,
    spread,
)
from penstock.streams.base.compiled import form

results: list[int] = []


async def handler(number: int) -> int:
    await asyncio.sleep(0)
    return number


asyncio.run(
    from_iterable([*range(1_000), *range(1_000)])
    .pipe(
        distinct_within(10, by=lambda number: number),
        group_by(lambda number: number % 7),
        spread(),
        adaptive_flat_map(handler, Fixed(8)),
    )
    .to(collect(results))
    .run()
)
assert sorted(results) == list(range(1_000)), len(results)
assert form() == "compiled", form()
print(form())
