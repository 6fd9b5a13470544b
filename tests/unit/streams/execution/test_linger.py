from __future__ import annotations

from penstock.streams.execution.linger import Linger


def arrivals(company: Linger, gap: float, count: int = 100, seconds: float = 1.0) -> None:
    for n in range(count):
        company.on_arrive(n * gap)
        company.on_complete(seconds)


def test_a_lone_event_of_a_quiet_stream_does_not_wait() -> None:
    company = Linger(10)
    arrivals(company, gap=1.5)
    assert company.patience(1) == 0


def test_events_wait_while_the_next_is_expected_sooner_than_it_costs_to_leave_it_out() -> None:
    company = Linger(10)
    arrivals(company, gap=0.25)
    assert [company.patience(n) for n in (1, 3, 4, 5)] == [1.0, 1.0, 0.0, 0.0]


def test_no_event_waits_while_another_call_is_free() -> None:
    company = Linger(10, parallel=3)
    arrivals(company, gap=0.25)
    assert [company.patience(1, free) for free in (1, 2, 3)] == [1.0, 0.0, 0.0]


def test_with_several_calls_the_next_event_must_be_expected_within_max_wait() -> None:
    for parallel, patience in ((1, 0.2), (2, 0.0)):
        company = Linger(0.2, parallel)
        arrivals(company, gap=0.25)
        assert company.patience(1) == patience


def test_nobody_waits_longer_than_was_allowed() -> None:
    company = Linger(0.1)
    arrivals(company, gap=0.01)
    assert company.patience(1) == 0.1


def test_nothing_is_expected_before_anything_was_seen() -> None:
    company = Linger(10)
    assert company.patience(1) == 0
    company.on_arrive(0)
    company.on_complete(1)
    assert company.patience(1) == 0


def test_a_slow_first_call_does_not_make_events_wait_for_long() -> None:
    company = Linger(10)
    company.on_complete(9.0)
    arrivals(company, gap=1.5, count=30)
    assert company.patience(1) == 0
