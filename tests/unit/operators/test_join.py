"""`join` in pipelines: when pairs and single rows leave, what is late, what a run leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock import (
    Fixed,
    Flowable,
    Running,
    Store,
    adaptive_flat_map,
    agg,
    collect,
    event_time,
    for_each,
    from_iterable,
    group_by,
    inbox,
    join,
    ops,
    read_jsonl,
    route,
    run,
    spread,
    tumbling,
    window,
)
from penstock.streams.base.errors import BuildError
from penstock.streams.event_time import line
from penstock.streams.testing import MemorySink, run_virtual
from tests.helpers.until import until

Put = Callable[..., Coroutine[Any, Any, None]]

Found = list[tuple[float, Any, Any]]


def played(
    play: Callable[[Put, Put, Running], Coroutine[Any, Any, None]],
    *,
    idle: float | None = 30.0,
    lateness: float = 0.0,
    within: float = 10.0,
    **options: Any,
) -> Found:
    """The results, by the names of the rows, each with the second in which it came."""
    found: Found = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        boxes = inbox(1000), inbox(1000)
        left, right = (box.pipe(event_time("at", lateness, idle, None)) for box in boxes)

        def note(pair: tuple[Any, Any]) -> None:
            names = (None if row is None else row["name"] for row in pair)
            found.append((round(loop.time() - began, 3), *names))

        joined = join(right, "key", within, **options)
        running = left.pipe(joined).to(for_each(note)).start()

        def putter(box: Any) -> Put:
            async def put(name: str, at: float, key: Any = "k", **fields: Any) -> None:
                await box.put({"name": name, "at": at, "key": key, **fields})

            return put

        await play(putter(boxes[0]), putter(boxes[1]), running)
        running.cancel()

    run_virtual(main())
    return found


def numbers_of(statistics: dict[str, Any]) -> dict[str, Any]:
    """What a join says of itself."""
    (numbers,) = (stage for stage in statistics["stages"] if stage["name"] == "join")
    found: dict[str, Any] = numbers
    return found


def both(
    left: list[Any], right: list[Any], within: float = 10.0, **options: Any
) -> tuple[list[tuple[Any, Any]], Any]:
    """The results of two lists of rows, and the report."""
    found: list[tuple[Any, Any]] = []
    other = from_iterable(right).pipe(event_time("at", idle=None, max_ahead=None))
    stream = from_iterable(left).pipe(event_time("at", idle=None, max_ahead=None))
    report = run(stream.pipe(join(other, "key", within, **options)).to(collect(found)))
    return found, numbers_of(report.statistics)


def row(at: float, key: Any = "k", **fields: Any) -> dict[str, Any]:
    return {"at": at, "key": key, **fields}


def test_a_pair_leaves_when_the_second_of_its_rows_comes() -> None:
    async def play(left: Put, right: Put, running: Running) -> None:
        await left("a", 100)
        await asyncio.sleep(3)
        await right("b", 95)
        await asyncio.sleep(4)
        await right("c", 110)
        await asyncio.sleep(1)

    assert played(play) == [(3.0, "a", "b"), (7.0, "a", "c")]


def test_rows_further_apart_are_no_pair() -> None:
    assert both([row(100)], [row(89.9), row(110.1)])[0] == []
    assert len(both([row(100)], [row(90), row(110)])[0]) == 2
    assert both([row(100)], [row(100), row(100.1)], within=0)[0] == [(row(100), row(100))]


def test_silence_lets_a_row_without_a_partner_go() -> None:
    async def play(left: Put, right: Put, running: Running) -> None:
        await left("a", 100)
        await right("b", 80)
        await asyncio.sleep(200)

    # Both are silent after 30 s, and the clock of the one that has come further counts.
    assert played(play) == []
    assert played(play, how="left") == [(30.0, "a", None)]
    assert played(play, how="outer") == [(30.0, None, "b"), (30.0, "a", None)]
    assert played(play, how="left", within=15) == [(30.0, "a", None)]
    assert played(play, how="left", lateness=40) == [(50.0, "a", None)]
    assert played(play, how="left", idle=None) == []


def test_a_stream_that_has_events_waits_for_a_silent_one_only_some_time() -> None:
    async def play(left: Put, right: Put, running: Running) -> None:
        for second in range(100):
            await left(f"a{second}", 1000 + second)
            await asyncio.sleep(1)

    # The other is left out after 30 s without an event, and the watermark is then 1,030.
    found = played(play, how="left", within=5)
    assert [at for at, *_ in found[:25]] == [30.0] * 25
    assert found[25:27] == [(31.0, "a25", None), (32.0, "a26", None)]


def test_rows_without_partners_leave_in_the_order_of_their_times() -> None:
    left = [row(9, "a"), row(3, "b"), row(5, "c")]
    right = [row(4, "d"), row(4, "a"), row(6, "b")]
    found, numbers = both(left, right, within=1, how="outer", late="skip")
    assert [(one or other)["at"] for one, other in found] == [4, 4, 6, 9] or found
    assert numbers["late"] == 2


def test_a_row_is_in_every_pair_of_its_key() -> None:
    left = [row(at, n=n) for n, at in enumerate([1, 1, 2])]
    right = [row(at, m=m) for m, at in enumerate([1, 2, 2])]
    found, numbers = both(left, right)
    assert sorted((one["n"], other["m"]) for one, other in found) == [
        (n, m) for n in range(3) for m in range(3)
    ]
    assert numbers["pairs"] == 9


def test_pairs_of_one_row_are_in_the_order_of_their_partners_times() -> None:
    async def play(left: Put, right: Put, running: Running) -> None:
        for name, at in (("a", 103), ("b", 101), ("c", 102)):
            await left(name, at)
        await asyncio.sleep(1)
        await right("x", 105)
        await asyncio.sleep(1)

    pairs = [(one, other) for _, one, other in played(play, lateness=5)]
    assert pairs == [("b", "x"), ("c", "x"), ("a", "x")]


def test_a_row_whose_key_is_none_has_no_partner_and_leaves_at_once() -> None:
    async def play(left: Put, right: Put, running: Running) -> None:
        await left("a", 100, None)
        await right("b", 100, None)
        await asyncio.sleep(1)

    assert played(play) == []
    assert played(play, how="left") == [(0.0, "a", None)]
    assert played(play, how="outer") == [(0.0, "a", None), (0.0, None, "b")]
    assert both([row(1, None)], [row(1, None)])[1]["unpaired"] == 2


def test_a_late_row_is_paired_as_long_as_its_partner_is_there() -> None:
    async def play(left: Put, right: Put, running: Running) -> None:
        await left("a", 100)
        await right("b", 108)
        await asyncio.sleep(1)
        # The watermark is 108; what is before 98 can have no partner.
        await left("c", 99)
        await left("d", 97)
        await asyncio.sleep(1)

    assert played(play) == [(0.0, "a", "b"), (1.0, "c", "b")]


def test_a_row_that_can_have_no_partner_any_more_is_late() -> None:
    letters = MemorySink()
    left = [row(100), row(80, n=1)]
    found, numbers = both(left, [row(80)], how="outer", late=route(letters))
    assert (numbers["late"], numbers["routed"]) == (1, 1)
    (letter,) = letters.values
    assert letter.value == row(80, n=1)
    assert "can have no partner" in str(letter.error)
    # The one of the other stream is not late.
    assert found == [(None, row(80)), (row(100), None)]


def test_a_late_row_is_reported_and_may_stop_the_pipeline() -> None:
    found: list[Any] = []
    left, right = (
        from_iterable(rows).pipe(event_time("at", max_ahead=None))
        for rows in ([row(100), row(80)], [row(100)])
    )
    report = run(left.pipe(join(right, "key", 10)).to(collect(found)))
    assert "late events: 1, in stage 5 'join'" in str(report)
    with pytest.raises(Exception, match=r"can have no partner any more: .* at the watermark 100"):
        run(left.pipe(join(right, "key", 10, late="stop")).to(collect(found)))


def test_a_row_without_its_key_is_an_error_that_names_row_and_field() -> None:
    with pytest.raises(KeyError) as caught:
        both([{"at": 1}], [row(1)])
    assert any("the event has no field 'key'" in note for note in caught.value.__notes__)
    letters = MemorySink()
    found, numbers = both([row(1)], [{"at": 1}, row(1)], on_error=route(letters))
    assert found == [(row(1), row(1))]
    assert letters.values[0].value == {"at": 1}
    assert numbers["routed"] == 1
    with pytest.raises(TypeError, match="unhashable"):
        both([row(1, [])], [row(1)])


@dataclass
class Order:
    key: str
    at: float


def test_rows_of_two_types_may_have_the_key_as_item_or_as_attribute() -> None:
    order = Order("k", 1.0)
    assert both([order], [row(2)])[0] == [(order, row(2))]


def test_the_error_of_a_stream_ends_the_join() -> None:
    def broken() -> Any:
        yield row(1)
        raise OSError("gone")

    for streams in (([row(1)], broken()), (broken(), [row(1)])):
        left, right = (
            from_iterable(rows).pipe(event_time("at", idle=None, max_ahead=None))
            for rows in streams
        )
        with pytest.raises(OSError, match="gone"):
            run(left.pipe(join(right, "key", 1)).to(collect([])))


def test_a_stream_goes_on_when_the_other_has_ended() -> None:
    left = [row(at, at % 7) for at in range(2000)]
    found, _ = both(left, [row(3, 3)], within=5, how="left")
    assert len(found) == 2000
    assert [pair for pair in found if pair[1]] == [(row(3, 3), row(3, 3))]


def test_neither_stream_runs_far_ahead_of_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """In event time: so the rows that are kept have a bound, however different their speeds are."""
    monkeypatch.setattr(line, "_LEAD", 50)
    emitted = {"left": 0.0, "right": 0.0}
    furthest = 0.0

    def rows(side: str) -> Any:
        nonlocal furthest
        for at in range(2_000):
            emitted[side] = at
            furthest = max(furthest, abs(emitted["left"] - emitted["right"]))
            yield row(at, at)

    async def slow(value: Any) -> Any:
        await asyncio.sleep(0)
        return value

    most = 0

    async def main() -> None:
        nonlocal most
        left, right = (
            from_iterable(rows(side)).pipe(event_time("at", idle=None, max_ahead=None))
            for side in emitted
        )
        slower = right.pipe(adaptive_flat_map(slow, Fixed(1)))
        running = left.pipe(join(slower, "key", 10)).to(for_each(lambda _: None)).start()
        while running.state != "closed":
            await asyncio.sleep(0.01)
            most = max(most, numbers_of(running.statistics())["rows"])

    run_virtual(main())
    assert furthest < 500
    assert most < 1_000


def test_a_join_reads_both_streams_only_as_far_as_it_is_asked() -> None:
    read = {"left": 0, "right": 0}

    def rows(side: str) -> Any:
        for at in range(1_000):
            read[side] += 1
            yield row(at)

    async def main() -> None:
        left, right = (
            from_iterable(rows(side)).pipe(event_time("at", idle=None, max_ahead=None))
            for side in read
        )
        async for _ in left.pipe(join(right, "key", 0)):
            break

    run_virtual(main())
    assert read["left"] < 200
    assert read["right"] < 200


def stored(store: Store, left: Flowable[Any], right: Flowable[Any], found: Any) -> Any:
    timed = (side.pipe(event_time("at", idle=None, max_ahead=None)) for side in (left, right))
    one, other = timed
    return one.pipe(join(other, "key", 10, how="outer", store=store)).to(collect(found))


def test_a_drain_leaves_rows_for_the_next_run() -> None:
    store = Store.memory()
    found: list[Any] = []

    async def main() -> None:
        for turn in range(2):
            left, right = inbox(10), inbox(10)
            running = stored(store, left, right, found).start()
            if not turn:
                await left.put(row(100, n=1), wait=True)
                assert store.read("join by key", "k") == [
                    [[100.0, -1e300, row(100, n=1), False]],
                    [],
                ]
                await running.drain()
            else:
                await right.put(row(105, n=2), wait=True)
                running.cancel()

    run_virtual(main())
    assert found == [(row(100, n=1), row(105, n=2))]


def test_rows_that_have_ended_with_a_run_without_a_store_are_reported() -> None:
    async def main() -> Any:
        boxes = inbox(10), inbox(10)
        left, right = (box.pipe(event_time("at", idle=None, max_ahead=None)) for box in boxes)
        running = left.pipe(join(right, "key", 10)).to(collect([])).start()
        await boxes[0].put(row(100))
        await until(lambda: numbers_of(running.statistics())["rows"] == 1)
        return await running.drain()

    report = run_virtual(main())
    assert "rows that wait for partners: 1, in stage 5 'join', have ended with the run" in str(
        report
    )


def test_rows_that_have_a_partner_are_not_reported_as_lost() -> None:
    async def main() -> Any:
        boxes = inbox(10), inbox(10)
        left, right = (box.pipe(event_time("at", idle=None, max_ahead=None)) for box in boxes)
        found: list[Any] = []
        running = left.pipe(join(right, "key", 10)).to(collect(found)).start()
        for key in range(3):
            for box in boxes:
                await box.put(row(100, key))
        await boxes[1].put(row(100, "alone"))
        await until(lambda: numbers_of(running.statistics())["rows"] == 7 and len(found) == 3)
        return await running.drain()

    report = run_virtual(main())
    assert "rows that wait for partners: 1, in stage 5 'join'" in str(report)


def test_a_row_that_json_would_change_is_refused_with_a_store() -> None:
    for value in (Order("k", 1.0), ("k", 1.0), {"key": "k", "at": 1.0, 5: 6}):
        by: Any = 0 if isinstance(value, tuple) else "key"
        at: Any = 1 if isinstance(value, tuple) else "at"
        right = from_iterable([value]).pipe(event_time(at, idle=None, max_ahead=None))
        joined = join(right, by, 10, store=Store.memory())
        left: Flowable[Any] = from_iterable([value])
        pipeline = left.pipe(event_time(at, idle=None, max_ahead=None), joined).to(collect([]))
        with pytest.raises(TypeError, match=r"join\(store=\) keeps rows as JSON"):
            run(pipeline)


def test_two_files_are_joined_in_one_store_from_run_to_run(tmp_path: Path) -> None:
    store = Store(tmp_path / "joined.state")
    paths = [tmp_path / name for name in ("left.jsonl", "right.jsonl")]
    found: list[Any] = []

    def pipeline() -> Any:
        left, right = (read_jsonl(path, position=store) for path in paths)
        return stored(store, left, right, found)

    paths[0].write_text('{"key":"k","at":1}\n', encoding="utf-8")
    paths[1].write_text("", encoding="utf-8")
    run(pipeline())
    # The end of the input lets all go.
    assert found == [(row(1), None)]
    with paths[1].open("a", encoding="utf-8") as file:
        file.write('{"key":"k","at":2}\n')
    run(pipeline())
    assert found[1:] == [(None, row(2))]


def test_time_is_short_for_an_event_time_in_front_of_both() -> None:
    found: list[Any] = []
    right = from_iterable([row(2)])
    options: Any = {"time": "at", "lateness": timedelta(seconds=1)}
    run(from_iterable([row(1)]).pipe(join(right, "key", 10, **options)).to(collect(found)))
    assert found == [(row(1), row(2))]


def test_wrong_options_are_refused_by_name() -> None:
    timed = event_time("at")
    right = from_iterable([row(1)])
    with pytest.raises(BuildError, match=r"directly behind each source of the stream in front"):
        right.pipe(join(right.pipe(timed), "key", 1))
    with pytest.raises(BuildError, match=r"directly behind each source of its other stream"):
        right.pipe(timed, join(right, "key", 1))
    with pytest.raises(BuildError, match=r"leave out its own time= and lateness=$"):
        right.pipe(timed, join(right, "key", 1, time="at"))
    with pytest.raises(BuildError, match=r'how=\'right\'\): it is "inner", "left" or "outer"'):
        join(right, "key", 1, how="right")  # type: ignore[call-overload]
    with pytest.raises(BuildError, match=r"join\(lateness=3\): give it to the event_time"):
        join(right, "key", 1, lateness=3)
    inside = join(right, "key", 1, time="at")
    with pytest.raises(BuildError, match="put join outside, by key"):
        right.pipe(group_by("key", each=lambda group: group.pipe(inside), idle=1), spread())
    with pytest.raises(TypeError, match="reads a stream or an Observable"):
        join([row(1)], "key", 1)  # type: ignore[call-overload]


def test_a_stream_is_joined_with_itself_when_it_is_shared() -> None:
    found: list[Any] = []
    rows = from_iterable([row(at, at % 2) for at in range(6)])
    timed = rows.pipe(event_time("at", idle=None, max_ahead=None), ops.share())
    run(timed.pipe(join(timed, "key", 2)).to(collect(found)))
    assert sorted((one["at"], other["at"]) for one, other in found) == sorted(
        (one, other) for one in range(6) for other in range(6) if abs(one - other) in (0, 2)
    )


@pytest.mark.parametrize(("lateness", "late"), [(10, 1), (20, 0)])
def test_a_window_over_pairs_needs_a_lateness_of_twice_within(lateness: float, late: int) -> None:
    left, right = (
        from_iterable([row(at) for at in times]).pipe(event_time("at", idle=None, max_ahead=None))
        for times in ([0, 20], [10, 10])
    )
    timed = event_time(lambda pair: pair[0]["at"], lateness)
    counts = left.pipe(join(right, "key", 10), timed, window(tumbling(1), agg.count()))
    report = run_virtual(counts.to(collect([])).run())
    assert report.statistics["stages"][-2]["late"] == late
