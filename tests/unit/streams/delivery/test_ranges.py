from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.streams.delivery.ledger import Ledger
from penstock.streams.delivery.ranges import Range, finished_in, text_of_most
from penstock.streams.kafka.offsets.metadata import METADATA

offsets = st.integers(0, 1 << 40)


def ranges_of(finished: set[int]) -> list[Range]:
    """Ranges of these offsets, in order."""
    ranges: list[Range] = []
    for offset in sorted(finished):
        if ranges and ranges[-1][1] == offset:
            ranges[-1] = ranges[-1][0], offset + 1
        else:
            ranges.append((offset, offset + 1))
    return ranges


def members(ranges: list[Range]) -> set[int]:
    return {offset for begin, end in ranges for offset in range(begin, end)}


@given(st.integers(0, 1 << 40), st.sets(st.integers(1, 300)))
def test_what_fits_is_read_as_it_was_written(floor: int, finished: set[int]) -> None:
    ranges = ranges_of({floor + one for one in finished})
    assert finished_in(floor, text_of_most(floor, ranges, METADATA).text) == ranges


@given(st.sets(st.integers(1, 3000)), st.integers(0, 200))
def test_of_what_does_not_fit_less_is_remembered_and_nothing_wrong(
    finished: set[int], most: int
) -> None:
    text, left_out = text_of_most(7, ranges_of({7 + one for one in finished}), most)
    assert len(text) <= most
    assert members(finished_in(7, text)) <= {7 + one for one in finished}
    assert len(members(finished_in(7, text))) + left_out == len(finished)


def test_a_long_run_takes_a_few_bytes() -> None:
    text, _ = text_of_most(5, [(6, 100_006)], METADATA)
    assert len(text) < 20
    assert finished_in(5, text) == [(6, 100_006)]


def test_twenty_thousand_records_finished_at_random_fit() -> None:
    drawn = random.Random(0)
    finished = ranges_of({one for one in range(1, 20_000) if drawn.random() < 0.5})
    text, _ = text_of_most(0, finished, METADATA - 100)
    assert len(text) <= METADATA - 100
    assert finished_in(0, text) == finished


@pytest.mark.parametrize(
    "text",
    [
        "",
        "another program's",
        "r",
        "r*",
        "rgA==",
        "rAQ==",
        "cAQE=",
        "bé",
    ],
)
def test_a_text_that_is_not_ours_holds_nothing(text: str) -> None:
    assert finished_in(3, text) == []


@given(st.data())
def test_a_restart_repeats_only_what_was_not_finished(data: st.DataObject) -> None:
    """Read, finish some, commit, and begin again, several times."""
    floor, known = 0, list[Range]()
    done: set[int] = set()
    for _ in range(data.draw(st.integers(1, 4))):
        ledger = Ledger[None](known=known)
        end = floor + data.draw(st.integers(0, 40))
        open_ = [offset for offset in range(floor, end) if ledger.read(offset, None)]
        assert not done & set(open_)
        finished = data.draw(st.sets(st.sampled_from(open_))) if open_ else set[int]()
        for offset in finished:
            ledger.finish(offset)
        done |= finished
        if ledger.floor is None:
            continue
        assert set(range(floor, ledger.floor)) <= done
        text, _ = text_of_most(ledger.floor, ledger.finished(), METADATA)
        known, floor = finished_in(ledger.floor, text), ledger.floor
