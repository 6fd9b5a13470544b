"""How one limit is divided among workers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.streams.workers.slot_shares import Lending, shares

NEEDS = st.lists(st.integers(0, 50), min_size=1, max_size=8)


@given(st.integers(1, 100), NEEDS)
def test_shares_add_up_to_the_limit(limit: int, needs: list[int]) -> None:
    assert sum(shares(limit, needs)) == limit


@given(st.integers(1, 100), NEEDS)
def test_nobody_gets_more_than_needed_while_another_lacks(limit: int, needs: list[int]) -> None:
    found = shares(limit, needs)
    if any(share < need for share, need in zip(found, needs, strict=True)):
        assert all(share <= need for share, need in zip(found, needs, strict=True))


@given(st.integers(1, 100), NEEDS)
def test_those_who_lack_get_the_same(limit: int, needs: list[int]) -> None:
    found = shares(limit, needs)
    lacking = [share for share, need in zip(found, needs, strict=True) if share < need]
    assert not lacking or max(lacking) - min(lacking) <= 1
    assert not lacking or max(found) - max(lacking) <= 1


class Worker:
    """A worker that uses what it was granted as far as it has events, and reads messages later."""

    def __init__(self) -> None:
        self.limit = 0
        self.events = 0
        self.in_flight = 0
        self.unread: list[int] = []
        self.confirms = False

    def begin(self) -> None:
        while self.in_flight < min(self.limit, self.events):
            self.in_flight += 1


@given(st.integers(2, 4), st.lists(st.tuples(st.integers(0, 5), st.integers(0, 6)), max_size=60))
def test_no_more_calls_than_the_limit_are_in_flight_whenever_messages_are_read(
    n: int, steps: list[tuple[int, int]]
) -> None:
    lending = Lending(3, n)
    workers = [Worker() for _ in range(n)]
    most = lending.limit

    def balance() -> None:
        active = min(n, lending.limit)
        needs = [worker.events for worker in workers]
        for at in lending.balance(needs, active):
            workers[at].unread.append(lending.granted[at])

    for what, number in steps:
        worker = workers[number % n]
        if what == 0 and number % n < min(n, lending.limit):
            # Slots are granted before the events are sent.
            worker.events += 1
            balance()
        elif what == 1 and worker.in_flight:
            worker.in_flight -= 1
            worker.events -= 1
            balance()
        elif what == 2 and worker.unread:
            worker.limit = worker.unread.pop(0)
            worker.confirms = True
        elif what == 3:
            most = lending.limit = 1 + number
            balance()
        elif what == 4 and worker.confirms and worker.in_flight <= worker.limit:
            worker.confirms = False
            if not worker.unread:
                lending.confirmed(number % n)
            balance()
        for one in workers:
            if not one.unread:
                one.begin()
        in_flight = sum(one.in_flight for one in workers)
        assert in_flight <= max(most, sum(lending.held))
        assert all(one.in_flight <= held for one, held in zip(workers, lending.held, strict=True))


def test_a_slot_that_may_be_in_use_is_not_lent_again_before_it_is_free() -> None:
    lending = Lending(4, 2)
    assert lending.balance([4, 0], 2) == [0, 1]
    assert lending.granted == [3, 1]
    # The first has begun three calls; now the second has as much to do.
    assert lending.balance([4, 4], 2) == [0]
    assert lending.granted == [2, 1]
    lending.confirmed(0)
    assert lending.balance([4, 4], 2) == [1]
    assert lending.granted == [2, 2]


def test_a_slot_that_cannot_be_in_use_is_lent_at_once() -> None:
    lending = Lending(4, 2)
    lending.balance([1, 0], 2)
    assert lending.granted == [2, 2]
    assert lending.balance([1, 4], 2) == [0, 1]
    assert lending.granted == [1, 3]


def test_a_worker_whose_slot_was_taken_back_has_it_again_when_the_limit_rises() -> None:
    lending = Lending(2, 2)
    lending.balance([1, 1], 2)
    lending.limit = 1
    lending.balance([1, 1], 1)
    assert lending.granted == [1, 0]
    lending.limit = 2
    # It has not been told, so that it will not confirm anything.
    assert lending.balance([0, 1], 2) == [1]
    assert lending.granted == [1, 1]
