from __future__ import annotations

import asyncio
import subprocess
import sys
from datetime import date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from math import inf, nan
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from orjson import dumps, loads

from penstock import (
    Store,
    collect,
    count_over_time,
    event_time,
    from_iterable,
    group_by,
    inbox,
    read_jsonl,
    route,
    run,
    spread,
)
from penstock.streams.base.errors import BuildError
from penstock.streams.protocol.event import Ending
from penstock.streams.temporal.periods.counts import sequenced
from penstock.streams.temporal.periods.intervals import (
    IntervalError,
    LateInterval,
    Period,
    Watermark,
)
from penstock.streams.temporal.periods.live_counts import KeyCounts, LiveCounts
from penstock.streams.temporal.periods.reading import Reading
from penstock.streams.temporal.periods.tallies import tally_maker
from penstock.streams.testing import (
    COMPLETED,
    CountedSource,
    ManualPublisher,
    Probe,
    VirtualClock,
    run_virtual,
)
from tests.helpers.until import until

ROWS = {"a": (0, 10), "b": (2, 5), "c": (5, 7), "d": (1, 9), "w": Watermark(6), "v": Watermark(4)}


def count(**options: Any) -> Any:
    return count_over_time(begin=0, end=1, **options)


def told(items: list[Any], **options: Any) -> list[tuple[Any, ...]]:
    """The output for the items, up to the end."""
    periods: list[Period] = []
    run(from_iterable(items).pipe(count_over_time(**options)).to(collect(periods)))
    return [(period.begin, period.end, period.value) for period in periods]


def p(begin: Any, end: Any, value: Any, key: Any = None) -> Period:
    return Period(key, begin, end, value)


# The story.


def test_the_diagram_of_the_documentation_plays(clock: VirtualClock) -> None:
    seen = clock.play("-a-b-c-w----|", count(), lookup=ROWS)
    assert seen == [(7, p(0, 2, 1)), (12, p(2, 7, 2)), (12, p(7, 10, 1)), (12, COMPLETED)]


def test_nothing_is_emitted_before_the_end_where_no_watermark_comes(clock: VirtualClock) -> None:
    assert clock.play("-a-b-|", count(), lookup=ROWS)[0] == (5, p(0, 2, 1))


def test_a_period_that_ends_at_the_watermark_may_still_grow(clock: VirtualClock) -> None:
    rows = {"a": (0, 4), "b": (4, 6), "v": Watermark(4)}
    assert clock.play("a-v-b|", count(), lookup=rows) == [(5, p(0, 6, 1)), (5, COMPLETED)]


def test_the_watermark_follows_the_rows_by_the_lateness(clock: VirtualClock) -> None:
    rows = {"a": (0, 1), "b": (5, 6), "c": (8, 9)}
    seen = clock.play("a-b-c|", count(lateness=5), lookup=rows)
    assert seen == [(4, p(0, 1, 1)), (5, p(5, 6, 1)), (5, p(8, 9, 1)), (5, COMPLETED)]


def test_a_row_before_the_watermark_is_not_counted_but_reported() -> None:
    async def story() -> None:
        source, probe = (
            CountedSource[Any]([(0, 10), Watermark(6), (2, 5), (6, 7)]),
            Probe[Period](99),
        )
        source.pipe(count()).connect(probe)
        await asyncio.sleep(0)
        assert probe.values == [p(0, 6, 1), p(6, 7, 2), p(7, 10, 1)]
        assert source.ledger.ended(Ending.FORGIVEN) == [(2, 5)]

    run_virtual(story())


def test_late_rows_can_go_to_a_sink_of_their_own() -> None:
    letters: list[Any] = []
    told_ = told([(0, 10), Watermark(6), (2, 5)], begin=0, end=1, late=route(collect(letters)))
    assert told_ == [(0, 10, 1)]
    assert [(letter.value, type(letter.error)) for letter in letters] == [((2, 5), LateInterval)]


def test_a_late_row_can_be_an_error() -> None:
    with pytest.raises(LateInterval, match="from 2 is before the watermark 6"):
        told([(0, 10), Watermark(6), (2, 5)], begin=0, end=1, late="stop")


def test_a_watermark_that_goes_back_is_ignored() -> None:
    rows = [(0, 10), Watermark(6), Watermark(3), (5, 7)]
    assert told(rows, begin=0, end=1) == [(0, 10, 1)]


def test_each_key_has_counts_of_its_own_under_one_watermark() -> None:
    rows = [(0, 4, "a"), (1, 6, "b"), Watermark(5), (5, 6, "a")]
    periods: list[Period] = []
    run(from_iterable(rows).pipe(count(by=2)).to(collect(periods)))
    assert periods == [p(0, 4, 1, "a"), p(1, 6, 1, "b"), p(5, 6, 1, "a")]


def test_a_row_may_come_as_its_beginning_and_its_end() -> None:
    parts: list[Any] = [
        {"order": 1, "from": 0},
        {"order": 2, "from": 3, "to": None},
        {"order": 3, "from": 4, "to": 5},
        Watermark(4),
        {"order": 1, "to": 8},
        {"order": 2, "from": None, "to": 6},
        {"order": 2, "from": 9},
    ]
    assert told(parts, id="order") == [
        (0, 3, 1), (3, 4, 2), (4, 5, 3), (5, 6, 2), (6, 8, 1), (9, None, 1),
    ]  # fmt: skip


def test_a_row_whose_end_comes_late_is_counted_up_to_the_watermark() -> None:
    parts = [{"id": 1, "from": 0}, Watermark(5), {"id": 1, "to": 3}, {"id": 2, "from": 9, "to": 10}]
    assert told(parts, id="id") == [(0, 5, 1), (9, 10, 1)]


@pytest.mark.parametrize("aggregate", ["sum", "min", "max", "avg"])
def test_other_aggregates_are_emitted_as_they_become_final(aggregate: Any) -> None:
    rows = [(0, 4, 5), (2, 6, 1), Watermark(3), (3, 9, 7)]
    expected = [
        (period.begin, period.end, period.value)
        for period in sequenced([rows[0], rows[1], rows[3]], aggregate, begin=0, end=1, of=2)
    ]
    assert told(rows, aggregate=aggregate, begin=0, end=1, of=2) == expected


@pytest.mark.parametrize(
    ("begin", "end", "lateness"),
    [
        (date(2024, 1, 1), date(2024, 1, 5), timedelta(days=1)),
        (date(2024, 1, 1), date(2024, 1, 5), 86400),
        (datetime(2024, 1, 1), datetime(2024, 1, 5), 3600),
        (Decimal("1.5"), Decimal("2.5"), 0.5),
    ],
)
def test_lateness_is_in_seconds_or_in_the_unit_of_the_rows(
    begin: Any, end: Any, lateness: Any
) -> None:
    assert told([(begin, end)], begin=0, end=1, lateness=lateness) == [(begin, end, 1)]


# The law.

moves = st.lists(
    st.tuples(st.integers(0, 20), st.integers(1, 9) | st.none(), st.sampled_from("ab"))
    | st.integers(0, 24),
    max_size=25,
)


class Kept:
    """The counts of each key under one watermark; they are stored and read again at every row."""

    def __init__(self, aggregate: Any = "count", *, include_zero: bool = False) -> None:
        make = tally_maker(aggregate, aggregate != "count", include_zero)
        of = None if aggregate == "count" else 2
        self.counts = LiveCounts(Reading(0, 1, of, 3), make, include_zero)
        self.keys: dict[Any, KeyCounts] = {}
        self.watermark = -inf

    def add(self, key: Any, begin: Any, end: Any, of: Any = None, name: Any = None) -> bool:
        state = self.keys.get(key)
        state = self.counts.new() if state is None else self.read_again(state)
        self.keys[key] = state
        return self.counts.add(state, -inf, (begin, end, of, name), self.watermark)

    def read_again(self, state: KeyCounts) -> KeyCounts:
        return self.counts.restored(loads(dumps(self.counts.stored(state))))

    def advance(self, watermark: float) -> list[Period]:
        self.watermark = max(watermark, self.watermark)
        told: list[Period] = []
        for key, state in list(self.keys.items()):
            due = self.counts.due(state)
            if due is not None and due <= watermark:
                told += self.counts.close(key, state, watermark)
            if self.counts.is_empty(state):
                del self.keys[key]
        return told

    @property
    def points(self) -> int:
        return sum(len(state.ahead) for state in self.keys.values())


@given(moves, st.booleans())
def test_what_is_emitted_is_final_in_order_and_in_the_end_the_count_of_what_was_accepted(
    moves: list[Any], include_zero: bool
) -> None:
    kept = Kept(include_zero=include_zero)
    accepted: list[Any] = []
    seen: dict[str, list[Period]] = {"a": [], "b": []}

    def tell(periods: Any) -> None:
        for period in periods:
            before = seen[period.key]
            assert not before or before[-1].end <= period.begin
            before.append(period)

    for move in moves:
        if isinstance(move, int):
            periods = kept.advance(move)
            assert all(period.end < move for period in periods)
            tell(periods)
            continue
        begin, length, key = move
        end = None if length is None else begin + length
        if not kept.add(key, begin, end, name=len(accepted)):
            assert begin < kept.watermark
        else:
            accepted.append((begin, end, key))
            ends = {end for row in accepted for end in row[:2] if end is not None}
            assert kept.points <= 2 * sum(end >= kept.watermark for end in ends)
    tell(kept.advance(inf))
    for key in "ab":
        rows = [row for row in accepted if row[2] == key]
        expected = sequenced(rows, by=2, begin=0, end=1, include_zero=include_zero)
        assert seen[key] == expected


@given(moves, st.data())
def test_rows_in_two_parts_count_like_whole_ones(moves: list[Any], data: st.DataObject) -> None:
    """The parts come in order of time, now and then with the watermark close behind."""
    rows = [move for move in moves if not isinstance(move, int)]
    parts = [(begin, number, "begin") for number, (begin, _, _) in enumerate(rows)]
    parts += [
        (begin + length, number, "end")
        for number, (begin, length, _) in enumerate(rows)
        if length is not None
    ]
    kept, told = Kept(), list[Period]()
    for at, number, what in sorted(parts):
        key = rows[number][2]
        ends = (at, None) if what == "begin" else (None, at)
        assert kept.add(key, *ends, name=number)
        if data.draw(st.booleans()):
            told += kept.advance(at)
    told += kept.advance(inf)
    whole = [(b, None if length is None else b + length, key) for b, length, key in rows]
    for key in "ab":
        mine = [period for period in told if period.key == key]
        assert mine == sequenced([row for row in whole if row[2] == key], by=2, begin=0, end=1)


@given(st.lists(st.integers(0, 30), max_size=12, unique=True))
def test_keys_without_a_row_are_forgotten(begins: list[int]) -> None:
    kept = Kept()
    for begin in begins:
        kept.add(begin, begin, begin + 1)
    kept.advance(100)
    assert kept.keys == {}


@pytest.mark.parametrize("aggregate", ["count", "sum", "avg", "min", "max"])
@pytest.mark.parametrize(
    "points",
    [
        (0, 4, 2.5, 10**30),
        (Decimal("0.1"), Decimal("2.5"), Decimal("0.3"), Decimal("7")),
        (Fraction(1, 3), Fraction(7, 3), Fraction(2, 3), Fraction(9)),
        (date(2024, 1, 1), date(2024, 1, 5), date(2024, 1, 2), date(2024, 1, 9)),
        (datetime(2024, 1, 1), datetime(2024, 1, 5), datetime(2024, 1, 2), datetime(2024, 1, 9)),
    ],
)
def test_points_and_amounts_of_any_kind_are_stored_as_they_are(aggregate: Any, points: Any) -> None:
    first, second, third, fourth = points
    rows = [
        (first, second, 5), (third, fourth, Decimal("0.1")),
        (third, second, 0.5), (second, fourth, Fraction(1, 3)),
    ]  # fmt: skip
    kept = Kept(aggregate)
    for row in rows:
        kept.add(None, *row)
    of = None if aggregate == "count" else 2
    assert kept.advance(inf) == sequenced(rows, aggregate, begin=0, end=1, of=of)


# Demand, and how events end.


def test_no_more_is_emitted_than_requested_and_no_row_is_read_meanwhile() -> None:
    async def story() -> None:
        source, probe = ManualPublisher[Any](), Probe[Period](request=1)
        source.pipe(count()).connect(probe)
        source.send((0, 1))
        source.send((2, 3))
        source.send(Watermark(5))
        await asyncio.sleep(0)
        assert len(probe.values) == 1
        source.send((6, 7))
        assert source.demand == 0
        probe.request(1)
        assert (len(probe.values), source.demand) == (2, 0)
        probe.request(1)
        assert source.demand == 1
        source.complete()
        await asyncio.sleep(0)
        assert probe.completed
        assert source.unsettled == []

    run_virtual(story())


def test_a_row_is_done_when_it_is_counted_and_a_watermark_at_once() -> None:
    async def story() -> None:
        source, probe = CountedSource[Any]([(0, 1), Watermark(5)]), Probe[Period](9, hold=True)
        source.pipe(count()).connect(probe)
        await asyncio.sleep(0)
        assert len(probe.events) == 1
        assert dict(source.ledger.endings) == {
            (0, 1): Ending.DROPPED,
            Watermark(5): Ending.DROPPED,
        }

    run_virtual(story())


# Bad rows and options.


@pytest.mark.parametrize(
    ("row", "kind", "said"),
    [
        ((5, 3), IntervalError, "from 5 comes after to 3"),
        ((nan, 3), TypeError, "NaN"),
        ((5, date(2024, 1, 1)), TypeError, "is a date"),
        ((date(2024, 1, 1), None), TypeError, "the points before it are each a number"),
        ("no row", TypeError, "not a point in time"),
        (Watermark("soon"), TypeError, "'soon' is not a point in time"),
    ],
)
def test_a_bad_row_ends_the_stream_or_is_left_out(row: Any, kind: Any, said: str) -> None:
    with pytest.raises(kind, match=said) as raised:
        told([(0, 1), row], begin=0, end=1)
    stage = "2 'watermarks'" if isinstance(row, Watermark) else "3 'count_over_time'"
    assert f"in stage {stage}, on the event" in raised.value.__notes__[0]
    assert told([(0, 1), row, (1, 2)], begin=0, end=1, on_error="skip") == [(0, 2, 1)]


def test_a_row_that_ends_where_it_begins_is_skipped_and_counted() -> None:
    rows = [(5, 5), (6, 8), (9, 9), (10, 11)]
    parts = [{"id": at, name: point} for at, row in enumerate(rows)
             for name, point in zip(("from", "to"), row, strict=True)]  # fmt: skip
    for items, options in ((rows, {"begin": 0, "end": 1}), (parts, {"id": "id"})):
        periods: list[Period] = []
        counts = count_over_time(include_zero=True, **options)
        report = run(from_iterable(items).pipe(counts).to(collect(periods)))
        assert periods == [p(6, 8, 1), p(8, 10, 0), p(10, 11, 1)]
        (stage,) = [one for one in report.statistics["stages"] if one["name"] == "count_over_time"]
        assert (stage["empty"], stage["skipped"]) == (2, 0)


def test_a_bad_first_row_does_not_decide_what_the_others_are() -> None:
    rows = [(date(2024, 1, 1), 3), (0, 1)]
    assert told(rows, begin=0, end=1, on_error="skip") == [(0, 1, 1)]


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ([{"id": 1, "to": 3}], "row 1 ends at 3, but none of that name is open"),
        ([{"id": 1, "from": 3}, {"id": 1, "from": 4}], "begins at 4, but is open since 3"),
        ([{"id": 1, "from": 3}, {"id": 1, "to": 2}], "from 3 comes after to 2"),
        ([{"id": 1}], "has neither a beginning nor an end"),
        ([{"from": 3}], "has no 'id'"),
    ],
)
def test_parts_that_do_not_belong_together_are_named(parts: list[Any], said: str) -> None:
    with pytest.raises(IntervalError, match=said):
        told(parts, id="id")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"lateness": -1}, "finite and not negative"),
        ({"lateness": nan}, "finite and not negative"),
        ({"lateness": timedelta(-1)}, "finite and not negative"),
        ({"aggregate": "mode"}, "use one of count, sum"),
        ({"aggregate": "min"}, "needs of="),
        ({"late": "drop"}, "late"),
    ],
)
def test_wrong_options_are_refused_when_the_stream_is_built(options: Any, said: str) -> None:
    with pytest.raises(BuildError, match=said):
        count_over_time(**options)


# The time of events.


def test_behind_event_time_silence_ends_periods() -> None:
    periods: list[Period] = []

    async def story() -> None:
        rows = inbox(9)
        timed = event_time("from", idle=5, max_ahead=None)
        running = rows.pipe(timed, count_over_time()).to(collect(periods)).start()
        await rows.put({"from": 100, "to": 103})
        await asyncio.sleep(4.9)
        assert periods == []
        await asyncio.sleep(0.2)
        assert periods == [p(100, 103, 1)]
        running.cancel()

    run_virtual(story())


def test_open_rows_are_not_ended_by_silence_but_by_the_end() -> None:
    async def story() -> None:
        source, probe = ManualPublisher[Any](), Probe[Period](9)
        timed = source.pipe(event_time("from", idle=5, max_ahead=None))
        timed.pipe(count_over_time()).connect(probe)
        source.send({"from": 100, "to": None})
        await asyncio.sleep(9e5)
        assert probe.values == []
        source.complete()
        await asyncio.sleep(0)
        assert probe.values == [p(100, None, 1)]

    run_virtual(story())


@pytest.mark.parametrize("options", [{"lateness": 0}, {"max_ahead": None}])
def test_options_that_event_time_has_are_refused_behind_it(options: Any) -> None:
    with pytest.raises(BuildError, match="leave out its own lateness= and max_ahead="):
        from_iterable([]).pipe(event_time("from"), count_over_time(**options))


def test_a_row_that_begins_before_the_time_of_its_event_is_an_error_of_its_own() -> None:
    rows = [{"from": 1, "to": 5}, {"from": 4, "to": 6}]
    periods: list[Period] = []
    timed = from_iterable(rows).pipe(event_time("to"))
    with pytest.raises(IntervalError, match="from 1 is before the time of its event: give event_"):
        run(timed.pipe(count_over_time()).to(collect(periods)))


def test_inside_a_group_it_is_refused() -> None:
    grouped = group_by(0, each=lambda group: group.pipe(count()), idle=9)
    with pytest.raises(BuildError, match="put count_over_time outside"):
        run(from_iterable([(0, 1)]).pipe(grouped, spread()).to(collect([])))


def test_a_drain_leaves_the_counts_in_the_store_for_the_next_run(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text('{"from": 1, "to": 5}\n{"from": 3, "to": 7}\n', encoding="utf-8")
    store = Store.memory()
    periods: list[Period] = []

    async def story() -> None:
        def pipeline(*, follow: bool) -> Any:
            source = read_jsonl(path, position=store, follow=follow)
            stages = event_time("from", lateness=9), count_over_time(store=store)
            return source.pipe(*stages).to(collect(periods))

        running = pipeline(follow=True).start()
        await until(lambda: running.statistics()["in"] == 2)
        await running.drain()
        await running.wait()
        assert periods == []
        await pipeline(follow=False).run()
        assert periods == [p(1, 3, 1), p(3, 5, 2), p(5, 7, 1)]

    asyncio.run(story())


# The published example.


def test_the_example_has_the_published_counts_and_the_query_agrees() -> None:
    script = Path(__file__).parents[3] / "examples" / "open_orders.py"
    done = subprocess.run(
        [sys.executable, str(script), "1200"], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[:4] == [
        "2004-07-13 to 2004-07-14: 394 open, 394 by a plain query",
        "2004-07-14 to 2004-07-16: 210 open, 210 by a plain query",
        "2004-07-16 to 2004-07-18: 138 open, 138 by a plain query",
        "the stream agrees: True, and so does the sequenced query: True",
    ]


@pytest.mark.parametrize("aggregate", ["sum", "avg", "min", "max"])
def test_an_amount_of_none_is_an_error_of_its_row(aggregate: Any) -> None:
    rows = [(0, 9, None), (1, 3, 2)]
    with pytest.raises(TypeError, match="None of type NoneType is not an amount") as raised:
        told(rows, aggregate=aggregate, begin=0, end=1, of=2)
    assert "in stage 3 'count_over_time', on the event" in raised.value.__notes__[0]
    kept = told(rows, aggregate=aggregate, begin=0, end=1, of=2, on_error="skip")
    assert kept == [(1, 3, 2)]


# What is valid, and its amount.
valid_moves = st.lists(
    st.tuples(st.integers(0, 40), st.integers(1, 4) | st.none(), st.integers(-50, 50)),
    min_size=20,
    max_size=60,
)


@given(valid_moves, st.sampled_from(["min", "max"]))
def test_the_least_and_the_greatest_keep_no_more_than_the_rows_that_are_valid(
    rows: list[Any], aggregate: Any
) -> None:
    best = min if aggregate == "min" else max
    tally = tally_maker(aggregate, True, False)()
    ends = [(b, None if length is None else b + length, of) for b, length, of in rows]
    for begin, end, of in ends:
        tally.enter(begin, of)
        if end is not None:
            tally.leave(end, of)
    for at in sorted(tally.pending):
        tally.cross(at)
        now = [of for begin, end, of in ends if begin <= at and (end is None or at < end)]
        assert tally.rows == len(now)
        assert not now or tally.value == best(now)
        assert kept_entries(tally) <= 3 * len(set(now)) + 8


@pytest.mark.parametrize(("aggregate", "stays"), [("min", -1), ("max", 10**6), ("min", 10**6)])
def test_a_row_that_stays_valid_does_not_keep_what_has_left(aggregate: Any, stays: int) -> None:
    counts = LiveCounts(Reading(0, 1, 2, None), tally_maker(aggregate, True, False), False)
    state = counts.new()
    counts.add(state, -inf, (0, None, stays), -inf)
    for begin in range(1, 5_000):
        counts.add(state, -inf, (begin, begin + 2, begin), -inf)
        counts.close(None, state, begin - 1)
        assert kept_entries(state.sweep.tally) <= 50


def kept_entries(tally: Any) -> int:
    """How many entries it keeps of rows whose points were crossed."""
    return sum(len(kept) for name, kept in vars(tally).items() if name != "pending" and sized(kept))


def sized(kept: Any) -> bool:
    return hasattr(kept, "__len__")


# Numbers and dates at the limits of their types.


@pytest.mark.parametrize(
    ("row", "lateness"),
    [
        ((date.min, date(2024, 1, 5)), timedelta(days=1)),
        ((datetime.min, datetime(2024, 1, 5)), 3600),
        ((date(2024, 1, 1), date(2024, 1, 5)), 1e300),
        ((10**300, 10**300 + 1), 0.5),
        ((Decimal("-9E+300"), Decimal("Infinity")), 5),
    ],
)
def test_a_lateness_may_reach_back_before_the_first_point_there_is(row: Any, lateness: Any) -> None:
    rows = [row, row]
    assert told(rows, begin=0, end=1, lateness=lateness, max_ahead=None) == [(*row, 2)]


@pytest.mark.parametrize("begin", [10**400, Decimal("-Infinity"), Decimal("9E+999999")])
def test_a_beginning_that_is_no_number_of_seconds_moves_no_watermark(begin: Any) -> None:
    rows = [(begin, Decimal("Infinity")), (2, 3)]
    assert told(rows, begin=0, end=1, lateness=5, on_error="skip") == [(2, 3, 1)]
    with pytest.raises(ValueError, match="is not a time"):
        told(rows, begin=0, end=1, lateness=5)


@pytest.mark.parametrize("aggregate", ["sum", "avg"])
def test_what_is_too_large_for_a_float_is_infinite_as_a_float_is(aggregate: Any) -> None:
    rows = [(0, 2, 1e308), (1, 3, 10**400), (1, 3, 1e308)]
    plus, minus = [(0, 1, 1e308), (1, 2, inf), (2, 3, inf)], [(0, 1, -1e308), (1, 3, -inf)]
    assert told(rows, aggregate=aggregate, begin=0, end=1, of=2) == [plus[0], (1, 3, inf)]
    mirrored = [(begin, end, -of) for begin, end, of in rows]
    assert told(mirrored, aggregate=aggregate, begin=0, end=1, of=2) == minus


@pytest.mark.parametrize("amount", ["1E+99999", "-1E-99999", "0E+99999"])
def test_a_decimal_that_is_too_large_is_not_an_amount(amount: str) -> None:
    rows = [(0, 1, Decimal(amount)), (1, 2, Decimal("9E+6144"))]
    options: dict[str, Any] = {"aggregate": "sum", "begin": 0, "end": 1, "of": 2}
    with pytest.raises(TypeError, match="is not an amount"):
        told(rows, **options)
    assert told(rows, **options, on_error="skip") == [(1, 2, Decimal("9E+6144"))]
