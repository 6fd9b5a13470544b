"""A time that is far ahead of the wall clock does not move the clock of an operator."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from penstock import (
    Flowable,
    collect,
    count_over_time,
    distinct_within,
    from_iterable,
    monitor,
    ops,
    route,
    run,
    violations,
)
from penstock.streams.base import clock
from penstock.streams.base.ahead import Ahead
from penstock.streams.base.errors import BuildError, TimeAhead
from penstock.streams.temporal import Watermark
from penstock.streams.temporal.periods.seconds import seconds_at
from penstock.streams.testing import run_virtual

NOW = clock.wall()
SOON = "G(a -> F[<=5s] b)"
LATER = [NOW * 1000, datetime(2999, 1, 1, tzinfo=UTC), "2999-01-01T00:00Z", "2999-01-01"]
TESTS: dict[str, Any] = {"a": {"a": 1}, "b": {"b": 1}}

Operator = Callable[..., Callable[[Flowable[Any]], Flowable[Any]]]


def duplicates(**options: Any) -> Any:
    return distinct_within(60, by="id", time="at", **options)


def watched(**options: Any) -> Any:
    return violations(SOON, time="at", strict=False, **TESTS, **options)


def passing(**options: Any) -> Any:
    return monitor(SOON, time="at", strict=False, **TESTS, **options)


def counted(**options: Any) -> Any:
    return count_over_time(begin="at", end="to", lateness=3600, **options)


OPERATORS = [duplicates, watched, passing, counted]


def through(operator: Any, events: list[Any]) -> list[Any]:
    out: list[Any] = []
    run(from_iterable(events).pipe(operator).to(collect(out)))
    return out


EVENTS = [{"at": NOW + n, "to": NOW + n + 2, "id": n % 2, "a": 1} for n in range(20)]


@pytest.mark.parametrize("make", OPERATORS)
@pytest.mark.parametrize("stamp", LATER[:1], ids=["milliseconds"])
def test_it_is_a_bad_event_by_the_policy_and_the_others_go_on_as_if_it_had_not_come(
    make: Operator, stamp: Any
) -> None:
    bad = {"at": stamp, "to": stamp + 5, "id": 7, "b": 1}
    letters: list[Any] = []
    with_it = through(make(on_error=route(collect(letters))), [*EVENTS[:9], bad, *EVENTS[9:]])
    assert with_it == through(make(), EVENTS)
    assert [(letter.value, type(letter.error)) for letter in letters] == [(bad, TimeAhead)]


@pytest.mark.parametrize("make", OPERATORS)
@pytest.mark.parametrize("stamp", LATER[1:3], ids=["datetime", "text"])
def test_a_datetime_and_a_text_are_times_too(make: Operator, stamp: Any) -> None:
    bad = {"at": stamp, "id": 7, "b": 1}
    with pytest.raises(TimeAhead, match="ahead of the clock, and max_ahead is 3,600 s"):
        through(make(), [bad])


@pytest.mark.parametrize("make", OPERATORS)
@pytest.mark.parametrize(
    ("parts", "unit"), [(1_000, "milli"), (1_000_000, "micro"), (1_000_000_000, "nano")]
)
def test_a_time_in_another_unit_is_said_to_look_like_it(
    make: Operator, parts: int, unit: str
) -> None:
    with pytest.raises(TimeAhead, match=rf"looks like {unit}seconds.* / {parts}\. on_error="):
        through(make(), [{"at": int((NOW - 60) * parts), "id": 7, "b": 1}])
    with pytest.raises(TimeAhead, match=f"looks like {unit}seconds"):
        through(make(), [{"at": Decimal(NOW) * parts, "id": 7, "b": 1}])


@pytest.mark.parametrize(
    "stamp",
    [NOW + 10_000, NOW * 50, NOW * 10, LATER[1], LATER[2]],
    ids=["hours", "times 50", "times 10", "a second time", "a third time"],
)
def test_other_times_ahead_look_like_no_unit(stamp: Any) -> None:
    with pytest.raises(TimeAhead, match=r"give max_ahead=None, or a greater one\. on_error="):
        through(duplicates(), [{"at": stamp, "id": 7}])


@pytest.mark.parametrize("make", OPERATORS)
def test_without_a_bound_or_within_it_a_time_may_be_ahead(make: Operator) -> None:
    far = [{"at": NOW + 36_000, "id": 7}]
    through(make(max_ahead=None), far)
    through(make(max_ahead=36_100), far)
    through(make(max_ahead=timedelta(hours=11)), far)
    through(make(), [{"at": NOW + 3500, "id": 7}])
    with pytest.raises(TimeAhead):
        through(make(max_ahead=7200), far)


@pytest.mark.parametrize("max_ahead", [60, 3600.0, float(3600), timedelta(hours=1), None])
@pytest.mark.parametrize("formula", [SOON, "G a"])
def test_a_bound_of_times_that_are_not_read_is_refused_when_the_operator_is_built(
    max_ahead: Any, formula: str
) -> None:
    def watches(operator: Any) -> Operator:
        return lambda **options: operator(formula, strict=False, **TESTS, **options)

    untimed: list[Operator] = [
        lambda **options: distinct_within(60, by="id", **options),
        watches(violations),
        watches(monitor),
    ]
    for make in untimed:
        with pytest.raises(BuildError, match=r"max_ahead=.*together with time"):
            make(max_ahead=max_ahead)
        make()


@pytest.mark.parametrize("make", OPERATORS)
@pytest.mark.parametrize("max_ahead", [-1, float("nan"), float("inf"), "1h", True])
def test_nonsense_is_refused_when_the_operator_is_built(make: Operator, max_ahead: Any) -> None:
    with pytest.raises(BuildError, match=r"max_ahead="):
        make(max_ahead=max_ahead)


@pytest.mark.parametrize("make", OPERATORS)
def test_a_replay_of_old_data_is_as_it_was(make: Operator) -> None:
    old = [{**one, "at": one["at"] - 1e9, "to": one["to"] - 1e9} for one in EVENTS]
    assert len(through(make(), old)) == len(through(make(max_ahead=None), old))


def test_on_virtual_time_the_wall_clock_is_the_loops() -> None:
    async def passed() -> list[Any]:
        out: list[Any] = []
        events = [{"at": 0, "id": 1}, {"at": 3600, "id": 2}, {"at": 3601, "id": 3}]
        stream = from_iterable(events)
        await stream.pipe(duplicates(on_error="skip")).to(collect(out)).run()
        await asyncio.sleep(1)
        await stream.pipe(duplicates(on_error="skip")).to(collect(out)).run()
        return [event["id"] for event in out]

    assert run_virtual(passed()) == [1, 2, 1, 2, 3]


def test_a_watermark_far_ahead_is_a_bad_item() -> None:
    items = [(NOW, NOW + 1), Watermark(NOW * 1000), (NOW + 2, NOW + 3)]
    counts: Any = count_over_time(begin=0, end=1, on_error="skip")
    assert len(through(counts, items)) == 2


def test_rows_that_move_no_watermark_may_begin_whenever_they_like() -> None:
    booked = [(NOW + 1e7, NOW + 2e7)]
    assert len(through(count_over_time(begin=0, end=1), booked)) == 1


@pytest.mark.parametrize(
    ("point", "is_refused"),
    [
        (Decimal(NOW) + 3600, False),
        (Decimal("1E+9999"), True),
        (10**400, True),
        (-(10**400), False),
        (datetime.fromtimestamp(NOW + 7200, UTC).replace(tzinfo=None), True),
        (datetime.fromtimestamp(NOW + 60, UTC), False),
        # It has begun somewhere.
        (datetime.fromtimestamp(NOW + 14 * 3600, UTC).date(), False),
        (datetime.fromtimestamp(NOW + 3 * 86_400, UTC).date(), True),
        (date.max, True),
    ],
    ids=map(str, range(9)),
)
def test_any_point_in_time_has_its_seconds(point: Any, is_refused: bool) -> None:
    guard = Ahead(3600, lambda: NOW)
    if is_refused:
        with pytest.raises(TimeAhead):
            guard.check(seconds_at(point), point)
    else:
        guard.check(seconds_at(point), point)


def test_no_bad_event_of_a_list_moves_the_window_of_the_good_ones() -> None:
    events = [{"at": NOW + n, "id": n % 3} for n in range(300)]
    bad = [{"at": NOW + 9e9, "id": 99}]
    mixed = [one for event in events for one in (event, *bad)]
    assert through(duplicates(on_error="skip"), mixed) == through(duplicates(), events)
    stream = from_iterable(mixed).pipe(ops.map(dict), duplicates(on_error="skip"))
    report = run(stream.to(collect([])))
    assert report.statistics["failed"] == 300
