from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from penstock.streams.delivery.ledger import Ledger
from penstock.streams.delivery.ranges import Range
from tests.helpers.walks import seeds


def ledger_of(*positions: int) -> Ledger[int]:
    """A ledger that has read these positions, each of which is its own mark."""
    ledger = Ledger[int]()
    for position in positions:
        ledger.read(position, position)
    return ledger


def test_the_floor_is_the_first_position_that_is_not_finished() -> None:
    ledger = ledger_of(3, 4, 7, 9)
    floors = list[int | None]()
    for position in (4, 9, 3, 7):
        ledger.finish(position)
        floors.append(ledger.floor)
    assert floors == [3, 3, 7, 10]


def test_there_is_no_floor_before_a_position_is_known() -> None:
    assert Ledger[None]().floor is None
    assert Ledger[None](5).floor == 5


def test_the_mark_is_that_of_the_floor() -> None:
    ledger = ledger_of(3, 4)
    assert ledger.mark(0) == 3
    ledger.finish(3)
    ledger.finish(4)
    assert ledger.mark(0) == 0


def test_what_is_finished_above_the_floor_includes_positions_without_an_entry() -> None:
    ledger = ledger_of(3, 4, 7, 9)
    ledger.finish(4)
    # 8 is between two that are not finished: nothing would be repeated without it.
    assert list(ledger.finished()) == [(4, 7)]


def test_what_was_finished_before_is_not_to_be_read() -> None:
    ledger = Ledger[None](known=[(5, 7), (9, 10)])
    assert [n for n in range(4, 12) if ledger.read(n, None)] == [4, 7, 8, 10, 11]


def test_what_was_finished_before_and_is_not_read_again_yet_stays_finished() -> None:
    ledger = Ledger[None](known=[(5, 7), (9, 12)])
    assert list(ledger.finished()) == [(5, 7), (9, 12)]
    for position in (4, 5, 6, 7):
        ledger.read(position, None)
    assert (ledger.floor, list(ledger.finished())) == (4, [(5, 7), (9, 12)])
    for position in (8, 9, 10):
        ledger.read(position, None)
    assert list(ledger.finished()) == [(5, 7), (9, 11), (11, 12)]


def test_a_position_that_is_finished_twice_is_finished_once() -> None:
    ledger = ledger_of(1, 2)
    ledger.finish(2)
    ledger.finish(2)
    assert (ledger.floor, len(ledger), list(ledger.finished())) == (1, 1, [(2, 3)])


def test_the_ledger_after_more_is_finished_leaves_this_one_as_it_is() -> None:
    ledger = ledger_of(1, 2, 3)
    after = ledger.after({1, 3})
    assert (after.floor, list(after.finished())) == (2, [(3, 4)])
    assert (ledger.floor, list(ledger.finished())) == (1, [])


def positions_of(ranges: list[Range]) -> set[int]:
    return {position for begin, end in ranges for position in range(begin, end)}


@given(st.data())
def test_nothing_that_is_finished_is_read_again_and_all_that_is_not_is(data: st.DataObject) -> None:
    """Read what is there, finish some, and begin again from the floor, several times."""
    there = data.draw(st.sets(st.integers(0, 60)), label="positions with an entry")
    floor: int | None = data.draw(st.sampled_from((None, 0)))
    known, done, at = list[Range](), set[int](), 0
    for _ in range(data.draw(st.integers(1, 4))):
        ledger = Ledger[int](floor, known)
        at = max(at, data.draw(st.integers(0, 60)))
        read = [n for n in sorted(there) if (floor or 0) <= n < at]
        unread = {n for n in read if ledger.read(n, -n)}
        assert unread == set(read) - done
        finished = data.draw(st.permutations(sorted(unread)))
        finished = finished[: data.draw(st.integers(0, len(finished)))]
        for position in finished:
            ledger.finish(position)
            done.add(position)
            left = sorted(unread - done)
            assert ledger.first(60) == left
            assert ledger.mark(1) == (-left[0] if left else 1)
        if ledger.floor is None:
            continue
        ranges = list(ledger.finished())
        # In order, apart from each other, and above the floor.
        ends = [ledger.floor, *(end for _, end in ranges)]
        assert all(begin >= end for (begin, _), end in zip(ranges, ends, strict=False))
        floor, known = ledger.floor, ranges
        assert {n for n in there if n < floor} <= done
        assert {n for n in positions_of(known) if n in there} == {n for n in done if n >= floor}


@seeds(200)
def test_successive_positions_may_be_read_in_one_call(seed: int) -> None:
    drawn = random.Random(seed)
    known = [(4, 6), (9, 10), (13, 20)][: drawn.randrange(4)]
    one_by_one, in_lists = Ledger[int](1, known), Ledger[int](1, known)
    for _ in range(6):
        first = in_lists.next or 1
        size = drawn.randrange(5)
        in_lists.read_all([-n for n in range(first, first + size)])
        for position in range(first, first + size):
            new = one_by_one.read(position, -position)
            assert new != in_lists.was_finished(position)
            if not new:
                in_lists.finish(position)
        for position in drawn.sample(range(1, first + size), min(2, first + size - 1)):
            one_by_one.finish(position)
            in_lists.finish(position)
        assert one_by_one.floor == in_lists.floor
        assert one_by_one.mark(0) == in_lists.mark(0)
        assert list(one_by_one.finished()) == list(in_lists.finished())


@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=12),
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 6)), max_size=12),
)
def test_successive_positions_may_be_finished_in_one_call(
    steps: list[int], runs: list[tuple[int, int]]
) -> None:
    one_by_one, in_runs = Ledger[int](0), Ledger[int](0)
    position = 0
    for step in steps:
        position += step
        for ledger in (one_by_one, in_runs):
            ledger.read(position, position)
    for first, more in runs:
        in_runs.finish_all(first, first + more)
        for position in range(first, first + more + 1):
            one_by_one.finish(position)
        assert one_by_one.floor == in_runs.floor
        assert one_by_one.first(40) == in_runs.first(40)
        assert list(one_by_one.finished()) == list(in_runs.finished())


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5), st.booleans()), max_size=12),
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 6)), max_size=12),
    st.randoms(use_true_random=False),
)
def test_positions_that_are_read_as_a_run_with_one_mark_are_finished_as_others_are(
    read: list[tuple[int, int, bool]], finished: list[tuple[int, int]], drawn: random.Random
) -> None:
    one_by_one, in_runs = Ledger[int](), Ledger[int]()
    steps: list[tuple[int, int] | tuple[int, int, bool]] = [*finished]
    for new in read:
        steps.insert(drawn.randint(0, len(steps)), new)
    for step in steps:
        if len(step) == 3:
            gap, count, as_run = step
            first = (one_by_one.next or 0) + gap
            positions = range(first, first + count)
            for position in positions:
                one_by_one.read(position, first)
            if as_run:
                in_runs.read_run(first, count, first)
            else:
                for position in positions:
                    in_runs.read(position, first)
        else:
            first, more = step
            for position in range(first, first + more + 1):
                one_by_one.finish(position)
            in_runs.finish_all(first, first + more)
        after = in_runs.after(range(10, 20)), one_by_one.after(range(10, 20))
        for left, right in ((in_runs, one_by_one), after):
            assert (left.floor, left.next, len(left)) == (right.floor, right.next, len(right))
            assert left.mark(-1) == right.mark(-1)
            assert {*left.marks()} == {*right.marks()}
            assert left.first(7) == right.first(7)
            assert left.first(99) == right.first(99)
            assert list(left.finished()) == list(right.finished())
