"""Reading a stream with `async for`."""

from __future__ import annotations

from penstock import from_iterable
from penstock.streams.testing.plugin import Run
from tests.helpers.futures import count_futures


def test_a_value_that_comes_at_once_needs_no_future(run: Run) -> None:
    async def futures() -> int:
        """How many are made for 1,000 values."""
        count = count_futures()
        assert [value async for value in from_iterable(range(1_000))] == list(range(1_000))
        return count()

    assert run(futures()) < 10
