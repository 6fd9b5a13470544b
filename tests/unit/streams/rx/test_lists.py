from __future__ import annotations

from typing import Any

import reactivex
from hypothesis import given
from hypothesis import strategies as st
from reactivex import operators as stock

from penstock.streams.testing import CountedSource, Probe

few = st.integers(1, 6)


@given(st.integers(0, 20), few, st.none() | few, st.lists(st.integers(1, 4)))
def test_lists_are_those_of_reactivex_and_made_of_no_more_than_they_need(
    events: int, count: int, skip: int | None, requests: list[int]
) -> None:
    wanted: list[list[int]] = []
    numbers = range(events)
    reactivex.from_iterable(numbers).pipe(stock.buffer_with_count(count, skip)).subscribe(
        wanted.append
    )
    source, probe = CountedSource(numbers), Probe[Any]()
    source.pipe(stock.buffer_with_count(count, skip)).connect(probe)
    for n in [*requests, events + 1]:
        probe.request(n)
        lists = probe.values
        assert lists == wanted[: probe.requested]
        if len(lists) < len(wanted):
            needed = (len(lists) - 1) * (skip or count) + count if lists else 0
            assert source.emitted == min(needed, events)
    assert probe.completed
    assert source.ledger.unsettled == []
