from __future__ import annotations

from random import Random

from examples.queue_day import HOURS, day

NOW = 1_700_000_000.0


def test_the_same_seed_gives_the_same_day() -> None:
    assert day(Random(1), NOW) == day(Random(1), NOW) != day(Random(2), NOW)


def test_rows_are_worked_on_by_one_poller_at_a_time_and_none_come_by_night() -> None:
    rows = day(Random(1), NOW)
    ended: dict[str, float] = {}
    for _, status, run_at, enqueued, started, finished, _, owner, _ in sorted(
        (row for row in rows if row[1] == 1), key=lambda row: row[4]
    ):
        assert status == 1
        assert enqueued <= run_at <= started < finished <= NOW
        assert started >= ended.get(owner, 0.0)
        ended[owner] = finished
    night = [row for row in rows if (NOW - row[3]) / 3600 % 24 >= 16]
    assert not night
    assert min(row[3] for row in rows) < NOW - (HOURS - 7) * 3600
