"""How sources that acknowledge handle the ends of their events."""

from __future__ import annotations

from typing import get_args

import pytest

from tests.helpers.reactive_streams.acknowledging_cases import ALL
from tests.helpers.reactive_streams.between import Below, How, end
from tests.helpers.reactive_streams.harness import every, standing_below, virtual

N = 20

ENDS: dict[str, list[How]] = {
    **{how: [how] for how in get_args(How)},
    "each in its own way": list(get_args(How)),
}


@every(kind=list(ALL))
@pytest.mark.parametrize("ends", ENDS.values(), ids=ENDS)
@pytest.mark.parametrize("size", [1, 4, N])
@virtual
async def test_each_event_is_acknowledged_once_or_comes_again(
    kind: str, ends: list[How], size: int
) -> None:
    """Events end in lists of `size`, the last ones first."""
    source = ALL[kind](N)
    below = Below(N, hold=True)
    again: set[int] = set()
    async with standing_below(source.stream(), below) as link:
        await link.settle()
        assert below.values == list(range(N))
        for place in reversed(range(0, N, size)):
            how = ends[place // size % len(ends)]
            if how in source.comes_again:
                again.update(below.values[place : place + size])
            end(below.events[place : place + size], how)
        await link.settle(5)
        assert link.unfinished() == 0
    if source.block and again:
        first = min(again)
        again = set(range(first - first % source.block, N))
    over, returned = await source.outcome()
    assert sorted(returned) == sorted(again)
    assert sorted(over) == sorted(set(range(N)) - again)
