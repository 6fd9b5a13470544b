from __future__ import annotations

import pytest

from penstock.streams.limits.limiter import Outcome
from penstock.streams.limits.slow_start import SlowStart


def count(start: SlowStart, now: float, started: float, in_flight: int, outcome: Outcome) -> bool:
    """Count one completion; whether that changed the limit, or ended the start."""
    before = start.limit, start.over
    assert start.count([(now, started, in_flight, outcome)], 0) == 1
    return (start.limit, start.over) != before


class Rounds:
    """Feeds a slow start whole rounds of work that begins together, at the limit."""

    def __init__(self, start: SlowStart) -> None:
        self.start = start
        self.now = 0.0

    def run(self, latency: float, *, in_flight: int | None = None) -> None:
        """One round of jobs that all take `latency`; by default the last of them is the limit-th.

        Stops where the limit changes, as the rest of the round belongs to the former one.
        """
        began, limit = self.now, self.start.limit
        self.now += latency
        for number in range(1, limit + 1):
            seen = number if in_flight is None else in_flight
            if count(self.start, self.now, began, seen, Outcome.SUCCESS):
                return


def slow_start(limit: int = 2, floor: int = 1, ceiling: int = 1000) -> Rounds:
    return Rounds(SlowStart(limit, floor, ceiling))


def test_each_round_of_steady_latency_doubles_the_limit() -> None:
    rounds = slow_start()
    limits: list[int] = []
    for _ in range(5):
        rounds.run(0.01)
        limits.append(rounds.start.limit)
    assert limits == [4, 8, 16, 32, 64]
    assert not rounds.start.over
    assert rounds.start.elasticity == pytest.approx(1)
    assert rounds.start.latency == pytest.approx(0.01)


def test_work_that_began_before_the_limit_was_raised_is_not_counted() -> None:
    rounds = slow_start()
    rounds.run(0.01)
    for _ in range(100):
        assert not count(rounds.start, 0.02, 0.005, 4, Outcome.SUCCESS)
    assert rounds.start.limit == 4


def test_a_limit_that_something_else_keeps_from_being_reached_is_not_raised() -> None:
    rounds = slow_start(limit=8)
    for _ in range(100):
        rounds.run(0.01, in_flight=7)
    assert (rounds.start.limit, rounds.start.over) == (8, False)
    # Nor by an occasional use of the whole limit, once it has been there for a while.
    for _ in range(100):
        count(rounds.start, rounds.now, rounds.now - 0.01, 8, Outcome.SUCCESS)
        rounds.run(0.01, in_flight=3)
    assert rounds.start.limit == 8
    rounds.run(0.01, in_flight=8)
    rounds.run(0.01, in_flight=8)
    assert rounds.start.limit == 16


def test_it_ends_where_latency_grows_with_the_limit_at_what_little_law_says_is_at_work() -> None:
    rounds = slow_start()
    while not rounds.start.over:
        rounds.run(0.01 * max(1.0, rounds.start.limit / 12))
        assert rounds.start.limit <= 32
    assert rounds.start.limit == 12
    assert rounds.start.reason == "doubling paid too little"


def test_latency_that_grew_while_the_limit_was_not_in_use_takes_back_one_doubling() -> None:
    rounds = slow_start()
    while rounds.start.limit < 32:
        rounds.run(0.01)
    for _ in range(3):
        rounds.run(0.1, in_flight=20)
    while not rounds.start.over:
        rounds.run(0.1, in_flight=32)
    assert rounds.start.limit == 16


def test_a_doubling_that_makes_latency_a_tenth_longer_pays() -> None:
    rounds = slow_start()
    for step in range(6):
        rounds.run(0.01 * 1.1**step)
    assert rounds.start.limit == 128


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [(Outcome.DROPPED, "work was dropped"), (Outcome.IGNORED, "more calls failed")],
)
def test_where_more_calls_fail_it_ends_below_the_number_at_which_they_began_to(
    outcome: Outcome, reason: str
) -> None:
    rounds = slow_start()
    while rounds.start.limit < 32:
        rounds.run(0.01)
    now = rounds.now
    assert not count(rounds.start, now + 0.001, now, 21, outcome)
    assert not count(rounds.start, now + 0.001, now, 22, outcome)
    assert count(rounds.start, now + 0.001, now, 23, outcome)
    assert (rounds.start.over, rounds.start.failed, rounds.start.limit) == (True, True, 20)
    assert rounds.start.reason == reason


def test_failures_take_back_no_more_than_the_last_doubling() -> None:
    rounds = slow_start()
    while rounds.start.limit < 32:
        rounds.run(0.01)
    for in_flight in (1, 2, 3):
        count(rounds.start, rounds.now + 0.001, rounds.now, in_flight, Outcome.DROPPED)
    assert rounds.start.limit == 16


def test_one_failure_in_twenty_does_not_end_it() -> None:
    rounds = slow_start()
    while rounds.start.limit < 512:
        began, limit = rounds.now, rounds.start.limit
        rounds.now += 0.01
        for number in range(1, limit + 1):
            outcome = Outcome.SUCCESS if number % 20 else Outcome.IGNORED
            if count(rounds.start, rounds.now, began, number, outcome):
                break
    assert not rounds.start.over


def test_a_drop_at_the_floor_only_begins_the_round_again() -> None:
    start = slow_start(limit=4, floor=4).start
    for _ in range(2):
        assert not count(start, 0.01, 0.0, 4, Outcome.SUCCESS)
    assert not count(start, 0.01, 0.0, 4, Outcome.DROPPED)
    for _ in range(2):
        assert not count(start, 0.02, 0.01, 4, Outcome.SUCCESS)
    assert count(start, 0.02, 0.01, 4, Outcome.SUCCESS)
    assert (start.limit, start.over) == (8, False)


def test_ordinary_errors_and_work_that_took_no_time_are_not_counted() -> None:
    start = slow_start().start
    for _ in range(100):
        assert not count(start, 0.01, 0.0, 2, Outcome.IGNORED)
        assert not count(start, 0.01, 0.01, 2, Outcome.SUCCESS)
    assert start.limit == 2


def test_it_ends_at_the_ceiling_after_a_round_there() -> None:
    rounds = slow_start(ceiling=12)
    limits: list[int] = []
    while not rounds.start.over:
        rounds.run(0.01)
        limits.append(rounds.start.limit)
    assert limits == [4, 8, 12, 12]
    assert rounds.start.reason == "at the ceiling"


def test_work_that_began_before_the_start_is_not_counted() -> None:
    start = SlowStart(2, 1, 64, since=10.0)
    for _ in range(10):
        assert not count(start, 11.0, 9.9, 2, Outcome.SUCCESS)
    count(start, 11.0, 10.0, 2, Outcome.SUCCESS)
    assert count(start, 11.0, 10.0, 2, Outcome.SUCCESS)
    assert start.limit == 4


@pytest.mark.parametrize(("variance", "over"), [(0.0, False), (0.01, True), (4.0, False)])
def test_a_spread_that_is_known_decides_how_sure_a_longer_latency_is(
    variance: float, over: bool
) -> None:
    rounds = Rounds(SlowStart(2, 1, 64, variance=variance))
    rounds.run(0.01)
    rounds.run(0.02)
    assert rounds.start.over is over


def test_a_clock_that_is_set_back_begins_the_round_again() -> None:
    start = slow_start().start
    for _ in range(2):
        count(start, 100.0, 99.0, 2, Outcome.SUCCESS)
    for began in (5.0, 6.0, 7.0, 8.0):
        count(start, began + 1, began, 4, Outcome.SUCCESS)
    assert start.limit == 8


def test_latency_that_grows_a_little_with_each_doubling_ends_it_as_soon_as_the_sum_is_sure() -> (
    None
):
    # With one server latency doubles with the limit; a lucky round or two may hide a doubling.
    rounds = slow_start(limit=1)
    for latency in (0.1, 0.16, 0.21, 0.8):
        assert not rounds.start.over
        rounds.run(latency)
    assert rounds.start.over
    assert rounds.start.limit <= 2
