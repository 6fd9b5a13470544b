"""`table` and `lookup` in pipelines: when events leave, with which rows, what a run leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from penstock import (
    Running,
    Store,
    agg,
    collect,
    event_time,
    for_each,
    from_iterable,
    inbox,
    join,
    lookup,
    ops,
    read_jsonl,
    route,
    run,
    table,
    tumbling,
    window,
)
from penstock.streams.base.errors import BuildError
from penstock.streams.testing import MemorySink, run_virtual
from tests.helpers.until import until

Put = Callable[..., Coroutine[Any, Any, None]]


def played(
    play: Callable[[Put, Put, Running], Coroutine[Any, Any, None]],
    *,
    idle: float | None = 30.0,
    lateness: float = 0.0,
    keep: float | None = None,
    is_timed: bool = True,
    **options: Any,
) -> list[tuple[float, str, str | None]]:
    """The results, by names, each with the second in which it came, while events and rows are put
    in as `play` says."""
    found: list[tuple[float, str, str | None]] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        boxes = inbox(1000), inbox(1000)
        rows = table(boxes[1].pipe(event_time("at", lateness, idle, None)), "key", keep)
        events = boxes[0].pipe(event_time("at", 0, idle, None)) if is_timed else boxes[0]

        def note(pair: tuple[Any, Any]) -> None:
            event, row = pair
            came = round(loop.time() - began, 3)
            found.append((came, event["name"], None if row is None else row["name"]))

        running = events.pipe(lookup(rows, "key", **options)).to(for_each(note)).start()

        def putter(box: Any) -> Put:
            async def put(name: str, at: float, key: Any = "k") -> None:
                await box.put({"name": name, "at": at, "key": key})

            return put

        await play(putter(boxes[0]), putter(boxes[1]), running)
        running.cancel()

    run_virtual(main())
    return found


def numbers_of(statistics: dict[str, Any]) -> dict[str, Any]:
    """What a look-up says of itself."""
    (numbers,) = (stage for stage in statistics["stages"] if stage["name"] == "lookup")
    found: dict[str, Any] = numbers
    return found


def row(at: float, key: Any = "k", **fields: Any) -> dict[str, Any]:
    return {"at": at, "key": key, **fields}


def looked_up(
    events: list[Any], rows: list[Any], keep: float | None = None, **options: Any
) -> tuple[list[tuple[Any, Any]], Any]:
    """The results of lists of events and rows, and the numbers of the stage."""
    found: list[tuple[Any, Any]] = []
    timed = event_time("at", idle=None, max_ahead=None)
    prices = table(from_iterable(rows).pipe(timed), "key", keep)
    stream = from_iterable(events).pipe(event_time("at", idle=None, max_ahead=None))
    report = run(stream.pipe(lookup(prices, "key", **options)).to(collect(found)))
    return found, numbers_of(report.statistics)


def test_an_event_gets_the_row_that_was_valid_at_its_time() -> None:
    rows = [row(10, n=1), row(20, n=2), row(30, n=3)]
    events = [row(9), row(10), row(15), row(20), row(29), row(1000)]
    found, numbers = looked_up(events, rows)
    assert [one["n"] if one else None for _, one in found] == [None, 1, 1, 2, 2, 3]
    assert (numbers["found"], numbers["missing"]) == (5, 1)


def test_an_event_waits_until_the_table_has_come_as_far() -> None:
    async def play(event: Put, row: Put, running: Running) -> None:
        await row("a", 100)
        await event("x", 105)
        await asyncio.sleep(2)
        await row("b", 103)
        await asyncio.sleep(2)
        await event("y", 107)
        await row("c", 106)
        await asyncio.sleep(3)

    assert played(play) == [(4.0, "x", "b")]


def test_a_silent_table_is_not_waited_for() -> None:
    async def play(event: Put, row: Put, running: Running) -> None:
        await row("a", 100)
        for second in range(6):
            await event(f"x{second}", 200 + second)
            await asyncio.sleep(1)

    # Each event leaves when the next one has passed it.
    found = played(play, idle=3)
    assert found == [
        (3.0, "x0", "a"),
        (3.0, "x1", "a"),
        (3.0, "x2", "a"),
        (4.0, "x3", "a"),
        (5.0, "x4", "a"),
    ]


def test_without_times_an_event_gets_the_newest_row_at_once() -> None:
    async def play(event: Put, row: Put, running: Running) -> None:
        await event("x", 0)
        await row("a", 100)
        await asyncio.sleep(1)
        await event("y", 0)
        await row("b", 90)
        await asyncio.sleep(1)
        # It is older than the other.
        await event("z", 0)
        await row("c", 110)
        await asyncio.sleep(1)
        await event("v", 0)
        await asyncio.sleep(1)

    found = played(play, is_timed=False)
    assert found == [(0.0, "x", None), (1.0, "y", "a"), (2.0, "z", "a"), (3.0, "v", "c")]


def test_an_event_without_a_row_waits_for_one_that_comes_late() -> None:
    async def play(event: Put, row: Put, running: Running) -> None:
        await row("other", 104, "l")
        await event("x", 103)
        await asyncio.sleep(1)
        # It is late for the table, whose watermark is 104.
        await row("a", 101)
        await asyncio.sleep(1)
        for at in (105, 120):
            await row("other", at, "l")
            await event("y", at, "l")
            await asyncio.sleep(1)

    assert played(play)[0] == (2.0, "x", None)
    assert played(play, wait=5)[0] == (2.0, "x", "a")
    assert played(play, wait=0.5)[0] == (2.0, "x", None)


def test_an_event_waits_no_longer_than_until_a_late_row_is_seen() -> None:
    async def play(event: Put, row: Put, running: Running) -> None:
        await row("other", 104, "l")
        for name, at in (("x", 103), ("y", 104)):
            await event(name, at)
        await asyncio.sleep(1)
        # The watermark has passed 103 already.
        await row("a", 101)
        await asyncio.sleep(1)
        for at in (105, 120):
            await row("other", at, "l")
            await event("z", at, "l")
            await asyncio.sleep(1)

    found = played(play, wait=10)
    assert found[:2] == [(2.0, "y", "a"), (2.0, "x", "a")]


def test_a_late_event_finds_rows_that_are_kept() -> None:
    rows = [row(10, n=1), row(20, n=2)]
    found, numbers = looked_up([row(100), row(15)], rows, keep=90)
    assert [(event["at"], one["n"]) for event, one in found] == [(15, 1), (100, 2)]
    letters = MemorySink()
    found, numbers = looked_up([row(100), row(15)], rows, keep=80, late=route(letters))
    assert [(event["at"], one["n"]) for event, one in found] == [(100, 2)]
    assert (numbers["late"], numbers["routed"]) == (1, 1)
    (letter,) = letters.values
    assert letter.value == row(15)
    assert "rows that were valid at its time may be gone" in str(letter.error)


def test_rows_that_were_replaced_are_dropped() -> None:
    rows = [row(at, n=at) for at in range(1_000)]

    async def main() -> int:
        boxes = inbox(2000), inbox(2000)
        streams = [box.pipe(event_time("at", idle=None, max_ahead=None)) for box in boxes]
        found = lookup(table(streams[1], "key", 5), "key")
        running = streams[0].pipe(found).to(collect([])).start()
        for one in rows:
            await boxes[0].put(one)
            await boxes[1].put(one)
        await until(lambda: numbers_of(running.statistics())["found"] == 999)
        kept: int = numbers_of(running.statistics())["rows"]
        running.cancel()
        return kept

    # At a watermark of 999.
    assert run_virtual(main()) == 7


def test_a_key_of_which_nothing_is_known_is_not_kept() -> None:
    for timed in ((event_time("at", idle=None, max_ahead=None),), ()):
        stages: Any = timed
        prices = table(from_iterable([row(1)]), "key", time="at")
        found: list[Any] = []
        events = from_iterable([row(at, at) for at in range(1_000)]).pipe(*stages)
        report = run(events.pipe(lookup(prices, "key")).to(collect(found)))
        assert len(found) == 1_000
        assert numbers_of(report.statistics)["keys"] == 1


def test_the_key_none_has_no_row() -> None:
    found, _ = looked_up([row(1, None)], [row(1, None)])
    assert found == [(row(1, None), None)]


def test_keys_of_events_and_rows_may_have_different_names() -> None:
    prices = table(from_iterable([{"id": 7, "since": 1}]), "id", time="since")
    found: list[Any] = []
    events = from_iterable([{"product": 7, "at": 2}])
    run(events.pipe(lookup(prices, "product", as_of="at")).to(collect(found)))
    assert found == [({"product": 7, "at": 2}, {"id": 7, "since": 1})]
    broken = table(from_iterable([{"since": 1}]), "id", time="since")
    with pytest.raises(KeyError) as caught:
        run(events.pipe(lookup(broken, "product", as_of="at")).to(collect(found)))
    assert any("the event has no field 'id'" in note for note in caught.value.__notes__)
    with pytest.raises(KeyError) as caught:
        run(from_iterable([{"at": 1}]).pipe(lookup(prices, "product", as_of="at")).to(collect([])))
    assert any("the event has no field 'product'" in note for note in caught.value.__notes__)


def test_a_table_is_there_in_the_next_run(tmp_path: Path) -> None:
    store = Store(tmp_path / "plans.state")
    paths = [tmp_path / name for name in ("clicks.jsonl", "plans.jsonl")]
    found: list[Any] = []

    def go(*lines: str) -> None:
        for path, line in zip(paths, lines, strict=True):
            with path.open("a", encoding="utf-8") as file:
                file.write(line)
        plans = table(read_jsonl(paths[1], position=store), "user", time="since", store=store)
        clicks = read_jsonl(paths[0], position=store)
        run(clicks.pipe(lookup(plans, "user", as_of="at")).to(collect(found)))

    go("", '{"user":"ann","since":1,"plan":"free"}\n')
    go('{"user":"ann","at":5}\n{"user":"bob","at":6}\n', "")
    assert found == [
        ({"user": "ann", "at": 5}, {"user": "ann", "since": 1, "plan": "free"}),
        ({"user": "bob", "at": 6}, None),
    ]


def test_events_that_wait_are_there_in_the_next_run() -> None:
    store = Store.memory()
    found: list[Any] = []

    async def main() -> None:
        for turn in range(2):
            boxes = inbox(10), inbox(10)
            streams = [box.pipe(event_time("at", idle=None, max_ahead=None)) for box in boxes]
            rows = table(streams[1], "key", store=store)
            running = streams[0].pipe(lookup(rows, "key")).to(collect(found)).start()
            if not turn:
                await boxes[0].put(row(100, n=1), wait=True)
                await running.drain()
            else:
                await boxes[1].put(row(90, n=2), wait=True)
                await boxes[1].put(row(110, n=3), wait=True)
                await boxes[0].put(row(120, n=4), wait=True)
                await until(lambda: bool(found))
                running.cancel()

    run_virtual(main())
    assert found == [(row(100, n=1), row(90, n=2))]


def test_events_that_have_ended_with_a_run_without_a_store_are_reported() -> None:
    async def main() -> Any:
        boxes = inbox(10), inbox(2_000)
        events, rows = (box.pipe(event_time("at", idle=None, max_ahead=None)) for box in boxes)
        running = events.pipe(lookup(table(rows, "key"), "key")).to(collect([])).start()
        # Those that wait are not among the first keys of the table.
        for n in range(1_500):
            await boxes[1].put(row(1, n))
        await until(lambda: numbers_of(running.statistics())["keys"] > 1_000)
        for n in range(5):
            await boxes[0].put(row(100 + n, f"new {n}"))
        await until(lambda: numbers_of(running.statistics())["keys"] == 1_505)
        return await running.drain()

    report = run_virtual(main())
    assert "events that wait for rows: 5, in stage 5 'lookup', have ended with the run" in str(
        report
    )


def test_events_that_wait_for_rows_are_counted() -> None:
    async def main() -> list[int]:
        boxes = inbox(10), inbox(10)
        events, rows = (box.pipe(event_time("at", idle=None, max_ahead=None)) for box in boxes)
        running = events.pipe(lookup(table(rows, "key"), "key")).to(collect([])).start()
        counts: list[int] = []

        async def see(count: int) -> None:
            await until(lambda: numbers_of(running.statistics())["events"] == count)
            counts.append(count)

        await boxes[1].put(row(1))
        for n in range(3):
            await boxes[0].put(row(10 + n))
            await see(n + 1)
        await boxes[1].put(row(12))
        await see(1)
        await running.drain()
        return counts

    assert run_virtual(main()) == [1, 2, 3, 1]


def test_rows_and_events_that_json_would_change_are_refused_with_a_store() -> None:
    for event, one in ((("k", 1), row(1)), (row(1), row(1, m={5: 6}))):
        by: Any = 0 if isinstance(event, tuple) else "key"
        at: Any = 1 if isinstance(event, tuple) else "at"
        rows = table(from_iterable([one]), "key", time="at", store=Store.memory())
        events: Any = from_iterable([event])
        with pytest.raises(TypeError, match=r"lookup\(store=\) keeps rows as JSON"):
            run(events.pipe(lookup(rows, by, as_of=at)).to(collect([])))


def test_two_look_ups_share_the_reading_of_a_table() -> None:
    rows = from_iterable([row(1, n=1)]).pipe(ops.share())
    first, second = (table(rows, key, time="at") for key in ("key", "n"))
    events = from_iterable([row(2, m=1)])
    found: list[Any] = []
    by_key, by_n = lookup(first, "key", as_of="at"), lookup(second, "m", as_of="at")
    only_event = ops.map(lambda pair: pair[0])
    run(events.pipe(by_key, only_event, by_n).to(collect(found)))
    assert found == [(row(2, m=1), row(1, n=1))]


def test_wrong_options_are_refused_by_name() -> None:
    rows = from_iterable([row(1)])
    timed = event_time("at")
    prices = table(rows, "key", time="at")
    with pytest.raises(BuildError, match="needs the times from which its rows are valid"):
        table(rows, "key")
    with pytest.raises(BuildError, match=r"leave out its own time=$"):
        table(rows.pipe(timed), "key", time="at")
    with pytest.raises(BuildError, match=r"give a table\(stream, by\)"):
        lookup(rows, "key")  # type: ignore[arg-type]
    with pytest.raises(BuildError, match=r"leave out its own as_of=$"):
        rows.pipe(timed, lookup(prices, "key", as_of="at"))
    with pytest.raises(BuildError, match=r"lookup\(wait=5\) waits in the time of events"):
        rows.pipe(lookup(prices, "key", wait=5))
    found = rows.pipe(timed, lookup(prices, "key"))
    behind = r"behind stage 5 'lookup', whose results have no times, or give time="
    with pytest.raises(BuildError, match=behind):
        found.pipe(join(rows.pipe(timed), "key", 1))
    with pytest.raises(BuildError, match=behind):
        found.pipe(window(tumbling(1), agg.count()))
