from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from penstock.streams.sql_queue.analytics.replay import (
    Numbers,
    Past,
    Replay,
    Visit,
    observed,
    replayed,
)
from tests.helpers.simulated_queue import Row, simulated

HOUR = 3600.0


def coming(
    rng: Random, hours: float, per_hour: float, works: Callable[[], float], begin: float = 0.0
) -> list[Row]:
    """Rows that come at random."""
    rows: list[Row] = []
    at = begin
    while (at := at + rng.expovariate(per_hour / HOUR)) < begin + hours * HOUR:
        rows.append(Row(at, [works()]))
    return rows


def two_kinds(seed: int) -> list[Row]:
    rng = Random(seed)
    return coming(rng, 6, 150, lambda: rng.gammavariate(9, 9 if rng.random() < 0.3 else 2))


def retried(seed: int) -> list[Row]:
    rng = Random(seed)
    rows = coming(rng, 6, 150, lambda: rng.gammavariate(9, 3))
    for row in rows:
        failures = 0
        while failures < 4 and rng.random() < 0.1:
            failures += 1
        row.works = [rng.gammavariate(9, 3) for _ in range(failures + 1)]
        row.delays = [30.0 * 2**n for n in range(failures)]
    return rows


def a_night(seed: int) -> list[Row]:
    """Two days of ten hours, the first with more than two pollers can do by its end."""
    rng = Random(seed)

    def works() -> float:
        return rng.gammavariate(4, 10)

    return [*coming(rng, 10, 190, works), *coming(rng, 10, 130, works, 24 * HOUR)]


def busy(seed: int) -> list[Row]:
    rng = Random(seed)
    return coming(rng, 4, 240, lambda: rng.gammavariate(4, 8))


def bulk(seed: int) -> list[Row]:
    rng = Random(seed)
    rows: list[Row] = []
    for _ in range(60):
        at = rng.random() * 4 * HOUR
        rows += [Row(at + n * 0.5, [0.0]) for n in range(rng.randrange(10, 120))]
    return sorted(rows, key=lambda row: row.came)


def cost(size: int) -> float:
    return 12.0 + 0.4 * size


def past_of(visits: list[Visit]) -> Past:
    past = observed(visits)
    assert past is not None
    return past


def p95(seconds: tuple[float, ...]) -> float:
    return seconds[int(0.95 * (len(seconds) - 1))]


def is_close(replay: Replay, truth: Replay, *, peaks: bool = True) -> bool:
    """Whether what is read off is within 10 %. Only a clear peak has a time at which it is over."""
    pairs = [(p95(replay.total), p95(truth.total)), (p95(replay.waited), p95(truth.waited))]
    if peaks:
        pairs.append((replay.empty_at, truth.empty_at))
    return pairs == [(found, pytest.approx(true, rel=0.1, abs=1.0)) for found, true in pairs]


SEEDS = range(5)


@pytest.mark.parametrize("seed", SEEDS)
def test_two_kinds_of_work_with_another_poller(seed: int) -> None:
    past = past_of(simulated(two_kinds(seed), 2))
    assert past.numbers == Numbers(2, 1, 1)
    truth = past_of(simulated(two_kinds(seed), 3)).was
    assert is_close(replayed(past, Numbers(3, 1, 1)), truth, peaks=False)


@pytest.mark.parametrize("seed", SEEDS)
def test_retries_with_another_poller(seed: int) -> None:
    past = past_of(simulated(retried(seed), 2))
    truth = past_of(simulated(retried(seed), 3)).was
    assert is_close(replayed(past, Numbers(3, 1, 1)), truth, peaks=False)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_night_without_work_with_another_poller(seed: int) -> None:
    past = past_of(simulated(a_night(seed), 2))
    truth = past_of(simulated(a_night(seed), 3)).was
    assert is_close(replayed(past, Numbers(3, 1, 1)), truth)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_poller_that_died_with_as_many_that_live(seed: int) -> None:
    past = past_of(simulated(busy(seed), 3, batch=4, dies_at=2 * HOUR))
    assert past.numbers == Numbers(3, 4, 1)
    truth = past_of(simulated(busy(seed), 3, batch=4)).was
    assert is_close(replayed(past, Numbers(3, 4, 1)), truth)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("batch", [10, 60])
def test_batches_of_another_size(seed: int, batch: int) -> None:
    past = past_of(simulated(bulk(seed), 2, batch=25, cost=cost))
    assert past.calls
    assert past.numbers == Numbers(2, 25, 1)
    assert (past.each_call, past.each_row) == (pytest.approx(12.0), pytest.approx(0.4))
    truth = past_of(simulated(bulk(seed), 2, batch=batch, cost=cost)).was
    assert is_close(replayed(past, Numbers(2, batch, 1)), truth)


@pytest.mark.parametrize("seed", SEEDS)
def test_other_numbers_of_slots(seed: int) -> None:
    past = past_of(simulated(busy(seed), 1, batch=6, limit=4))
    # A claim of six rows need not have happened.
    assert (past.numbers.pollers, past.numbers.limit) == (1, 4)
    assert past.numbers.batch <= 6
    truth = past_of(simulated(busy(seed), 3, batch=2, limit=1)).was
    assert is_close(replayed(past, Numbers(3, 2, 1)), truth)


def test_the_same_numbers_give_the_same_history() -> None:
    visits = simulated(two_kinds(7), 2)
    past = past_of(visits)
    again = replayed(past, past.numbers)
    assert again.waited == pytest.approx(past.was.waited)
    assert again.total == pytest.approx(past.was.total)
    assert (again.most, again.empty_at) == (past.was.most, pytest.approx(past.was.empty_at))


def test_rows_that_have_not_ended_come_as_well() -> None:
    past = past_of(
        [
            Visit(0.0, 0.0, 0.0, 10.0, 1, "a"),
            Visit(1.0, 1.0, 10.0, None, 1, "a"),
            Visit(2.0, 2.0, None, None, 0, None),
        ]
    )
    assert past.was.empty_at == float("inf")
    assert replayed(past, Numbers(1, 1, 1)).total == (10.0, 19.0, 28.0)
    assert replayed(past, Numbers(3, 1, 1)).empty_at == 0.0


def test_a_queue_that_a_row_leaves_when_the_next_comes_is_not_empty() -> None:
    past = past_of(
        [
            Visit(0.0, 0.0, 0.0, 10.0, 1, "a"),
            Visit(5.0, 5.0, 10.0, 20.0, 1, "a"),
            Visit(10.0, 10.0, 20.0, 30.0, 1, "a"),
        ]
    )
    assert (past.was.most, past.was.empty_at) == (1, 20.0)
    assert replayed(past, past.numbers).empty_at == 20.0


def test_rows_that_failed_for_good_and_have_no_poller_are_worked_on_too() -> None:
    past = past_of([Visit(0.0, 0.0, 5.0, 8.0, 1, None), Visit(1.0, 1.0, 8.0, 12.0, 1, "a")])
    assert replayed(past, Numbers(2, 1, 1)).total[-1] == pytest.approx(4.0)


def test_without_a_row_that_ended_there_is_nothing_to_replay() -> None:
    assert observed([]) is None
    assert observed([Visit(0.0, 0.0, None, None, 0, None)]) is None


def test_rows_that_always_end_in_equal_numbers_were_in_slots() -> None:
    visits = [Visit(0.0, 0.0, at, at + 6.0, 1, "a") for at in (0.0, 6.0, 12.0) for _ in range(3)]
    past = past_of(visits)
    assert not past.calls
    assert past.numbers == Numbers(1, 3, 3)


def test_the_wait_of_rows_within_a_poller_that_claims_many_is_no_work() -> None:
    # Ten rows are claimed at once, and worked on by two slots for 4 to 6 s each.
    rng = Random(1)
    slots, visits = [0.0, 0.0], list[Visit]()
    for _ in range(10):
        slots.sort()
        slots[0] += 4 + 2 * rng.random()
        visits.append(Visit(0.0, 0.0, 0.0, slots[0], 1, "a"))
    past = past_of(visits)
    assert past.numbers == Numbers(1, 10, 2)
    assert max(replayed(past, Numbers(10, 1, 1)).total) < 6.0


def test_the_failed_attempts_of_a_row_are_work_as_well() -> None:
    # The second row waited for the first attempt of the first one, from 200 to 210.
    failed = Visit(200.0, 260.0, 260.0, 270.0, 2, "a")
    behind = Visit(205.0, 205.0, 210.0, 220.0, 1, "a")
    totals = replayed(past_of([failed, behind]), Numbers(1, 1, 1)).total
    assert totals[0] == 15.0


def test_rows_of_a_dead_poller_are_replayed_once_and_those_that_failed_twice() -> None:
    work = Visit(0.0, 0.0, 0.0, 10.0, 1, "a")
    # Claimed again when the lease ran out: due as ever.
    died = Visit(100.0, 100.0, 160.0, 170.0, 2, "b")
    # Failed after its first 10 s, and due again 50 s later.
    failed = Visit(200.0, 260.0, 260.0, 270.0, 2, "b")
    totals = replayed(past_of([work, died, failed]), Numbers(1, 1, 1)).total
    assert totals == (10.0, 10.0, pytest.approx(70.0))
