from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.streams.work_pulling.utilisation import Use, Utilisation


class Watched:
    """Workers who are busy for a part of the time, observed ten times a second."""

    def __init__(self) -> None:
        self.utilisation = Utilisation()
        self._now, self._done = 0.0, 0.0

    def work(self, seconds: float, workers: int, rate: float, busy: float = 1.0) -> Use:
        for _ in range(round(seconds * 10)):
            self._now += 0.1
            self._done += rate / 10
            out = round(100 * workers * busy)
            self.utilisation.observe(self._now, workers, out, 100 * workers, int(self._done))
        return self.utilisation.use()


def test_nothing_is_known_without_workers() -> None:
    assert Utilisation().use() == Use(0, None, None, None)
    assert Watched().work(10, 0, 0.0) == Use(0, None, None, None)


def test_a_gain_is_not_told_from_few_jobs() -> None:
    pool = Watched()
    pool.work(100, 2, 1.2)
    assert pool.work(60, 3, 1.9).gain is None


def test_a_gain_is_that_of_the_minute_after_the_change() -> None:
    pool = Watched()
    pool.work(60, 2, 20.0)
    assert pool.work(50, 3, 30.0).gain == pytest.approx(1.0, abs=0.02)
    pool.work(15, 3, 30.0)
    # The jobs became easier later, which no worker has brought.
    assert pool.work(100, 3, 300.0).gain == pytest.approx(1.0, abs=0.02)


def test_a_rate_is_that_of_the_last_minute_before_the_change() -> None:
    pool = Watched()
    pool.work(1000, 2, 2000.0)
    pool.work(70, 2, 20.0)
    assert pool.work(50, 3, 30.0).gain == pytest.approx(1.0, abs=0.02)


def test_workers_who_join_one_by_one_are_compared_with_the_last_number_that_was_measured() -> None:
    pool = Watched()
    pool.work(60, 2, 20.0)
    for number in range(3, 8):
        pool.work(0.5, number, 10.0 * number)
    assert pool.work(60, 8, 50.0).gain == pytest.approx(0.5, abs=0.02)


def test_fewer_pay_where_the_last_ones_brought_little() -> None:
    pool = Watched()
    pool.work(60, 2, 20.0)
    assert pool.work(60, 4, 22.0).pays == 2
    assert pool.work(60, 2, 20.0).pays == 2


@given(st.integers(1, 9), st.floats(0.02, 1.0))
def test_so_many_pay_as_would_be_busy(workers: int, busy: float) -> None:
    use = Watched().work(10, workers, 10.0, busy)
    assert use.busy == pytest.approx(busy, abs=0.006)
    assert use.pays is not None
    if busy < 0.79:
        assert 1 <= use.pays <= workers
        # So many would not be overloaded.
        assert workers * use.busy <= use.pays
    elif busy > 0.96:
        assert use.pays == workers + 1


def test_workers_with_long_jobs_are_as_busy_as_they_were_in_the_last_minute() -> None:
    utilisation = Utilisation()
    for number in range(50):
        utilisation.observe(600.0 * number, 2, 2, 2, 2 * number)
    # Their jobs end, and no others come.
    utilisation.observe(30_000.0, 2, 0, 2, 100)
    for seconds in (30_030.0, 30_060.0):
        utilisation.observe(seconds, 2, 0, 2, 100)
    assert utilisation.use() == Use(2, 0.0, None, 1)
