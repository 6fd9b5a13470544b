"""`event_time` and `window` in pipelines: when windows close, what is late, what a run leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock import (
    Fixed,
    Pipeline,
    Running,
    Store,
    Window,
    adaptive_flat_map,
    agg,
    collect,
    event_time,
    for_each,
    from_iterable,
    group_by,
    inbox,
    ops,
    read_jsonl,
    route,
    run,
    sliding,
    spread,
    stateful,
    tumbling,
    window,
)
from penstock.streams.base.errors import BuildError
from penstock.streams.testing import MemorySink, run_virtual
from tests.helpers.until import until

Put = Callable[..., Coroutine[Any, Any, None]]


def played(
    play: Callable[[Put, Running], Coroutine[Any, Any, None]],
    *before: Any,
    idle: float | None = 30.0,
    lateness: float = 0.0,
    **options: Any,
) -> list[tuple[float, Any, float, float, Any]]:
    """The results of windows of ten seconds, each with the second in which it came, while events
    are put in as `play` says."""
    found: list[tuple[float, Any, float, float, Any]] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        box = inbox(1000)

        def note(one: Window[int]) -> None:
            came = round(loop.time() - began, 3)
            found.append((came, one.key, one.start, one.end, one.value))

        stages = event_time("at", lateness, idle, None), *before
        counts = window(tumbling(10), agg.count(), "key", **options)
        running = box.pipe(*stages, counts).to(for_each(note)).start()

        async def put(*times: float, key: str = "a", **fields: Any) -> None:
            for time in times:
                await box.put({"at": time, "key": key, **fields})

        await play(put, running)
        running.cancel()

    run_virtual(main())
    return found


def test_a_window_closes_with_the_event_that_moves_the_watermark_to_its_end() -> None:
    async def play(put: Put, running: Running) -> None:
        await put(101, 105, 109)
        await asyncio.sleep(1)
        await put(110)
        await asyncio.sleep(1)

    assert played(play) == [(1.0, "a", 100, 110, 3)]


def test_silence_closes_it() -> None:
    async def play(put: Put, running: Running) -> None:
        await put(105)
        await asyncio.sleep(100)

    assert played(play) == [(30.0, "a", 100, 110, 1)]
    assert played(play, lateness=40) == [(45.0, "a", 100, 110, 1)]
    assert played(play, idle=2) == [(5.0, "a", 100, 110, 1)]
    assert played(play, idle=None) == []


def test_a_paused_source_is_silent_only_some_time_after_the_pause() -> None:
    async def play(put: Put, running: Running) -> None:
        await put(105)
        await asyncio.sleep(10)
        running.pause()
        await asyncio.sleep(1000)
        running.resume()
        await asyncio.sleep(100)

    assert played(play) == [(1040.0, "a", 100, 110, 1)]


def test_a_source_that_is_not_asked_is_not_silent() -> None:
    async def work(value: Any) -> Any:
        await asyncio.sleep(200 if value.get("slow") else 0)
        return value

    async def play(put: Put, running: Running) -> None:
        await put(105)
        # The handler takes this one, and requests no more until it is done.
        await put(107, slow=True)
        await asyncio.sleep(1000)

    assert played(play, adaptive_flat_map(work, Fixed(1), window=1)) == [(230.0, "a", 100, 110, 2)]


def test_no_slow_handler_makes_an_event_late() -> None:
    async def work(value: Any) -> Any:
        await asyncio.sleep(value.get("takes", 0))
        return value

    async def play(put: Put, running: Running) -> None:
        await put(101, takes=7)
        await put(125)
        await asyncio.sleep(20)

    assert played(play, adaptive_flat_map(work, Fixed(4))) == [(7.0, "a", 100, 110, 1)]


def test_windows_of_all_keys_close_in_the_order_of_their_ends() -> None:
    async def play(put: Put, running: Running) -> None:
        await put(101, 111, 121, key="a")
        await put(102, 112, 122, key="b")
        await put(170, key="c")
        await asyncio.sleep(1)

    ends = [(end, key) for _, key, _, end, _ in played(play, lateness=30)]
    assert ends == [(110, "a"), (110, "b"), (120, "a"), (120, "b"), (130, "a"), (130, "b")]


def test_windows_that_overlap_close_in_the_order_of_their_ends_too() -> None:
    events = [{"at": 101, "key": "a"}, {"at": 104, "key": "b"}, {"at": 200, "key": "c"}]
    found: list[Any] = []
    counts = window(sliding(10, every=1), agg.count(), by="key")
    run(from_iterable(events).pipe(event_time("at"), counts).to(collect(found)))
    ends = [one.end for one in found]
    assert len(ends) == 30
    assert ends == sorted(ends)


def test_the_end_of_the_input_closes_all_windows_and_a_drain_none(tmp_path: Path) -> None:
    events = [{"at": time} for time in (1, 12)]
    ended: list[Any] = []
    counts = window(tumbling(10), agg.count())
    run(from_iterable(events).pipe(event_time("at"), counts).to(collect(ended)))
    assert [(one.start, one.value) for one in ended] == [(0, 1), (10, 1)]

    path, store = tmp_path / "in.jsonl", Store(tmp_path / "state")
    path.write_text('{"at": 1}\n{"at": 12}\n')
    results: list[Any] = []

    def pipeline(follow: bool) -> Pipeline:
        kept = window(tumbling(10), agg.count(), store=store)
        source = read_jsonl(path, position=store, follow=follow)
        return source.pipe(event_time("at"), kept).to(collect(results))

    async def drained() -> None:
        running = pipeline(follow=True).start()
        await until(lambda: bool(results))
        await running.drain()

    asyncio.run(drained())
    assert [(one.start, one.value) for one in results] == [(0, 1)]
    run(pipeline(follow=False))
    assert [(one.start, one.value) for one in results] == [(0, 1), (10, 1)]


def test_a_window_that_silence_has_closed_stays_closed_and_downtime_closes_none() -> None:
    store = Store.memory()

    async def play(*times: float, silence: float) -> tuple[list[tuple[float, int]], int]:
        box, found = inbox(10), list[tuple[float, int]]()
        counts = window(tumbling(10), agg.count(), store=store)
        stages = event_time("at", 0, 30, None), counts
        results = for_each(lambda one: found.append((one.start, one.value)))
        running = box.pipe(*stages).to(results).start()
        for time in times:
            await box.put({"at": time})
        await asyncio.sleep(silence)
        await running.drain()
        return found, running.statistics()["stages"][2]["late"]

    async def story() -> None:
        assert await play(21, 22, silence=100) == ([(20, 2)], 0)
        await asyncio.sleep(1000)
        # The commit of the window that silence closed has the watermark of then.
        assert await play(23, 121, 123, silence=1) == ([], 1)
        assert await play(131, silence=1) == ([(120, 2)], 0)

    run_virtual(story())


def test_a_late_event_is_counted_and_goes_where_late_says() -> None:
    events = [{"at": 25}, {"at": 3}]
    letters = MemorySink()
    counts = window(tumbling(10), agg.count(), late=route(letters))
    results: list[Any] = []
    report = run_virtual(
        from_iterable(events).pipe(event_time("at"), counts).to(collect(results)).run()
    )
    assert [(one.start, one.value) for one in results] == [(20, 1)]
    assert [letter.value for letter in letters.values] == [{"at": 3}]
    assert report.statistics["stages"][2]["late"] == 1


def test_an_error_of_the_aggregate_leaves_the_window_as_it_was() -> None:
    events = [{"at": 1, "cents": 5}, {"at": 2, "cents": "x"}, {"at": 3, "cents": 7}]
    results: list[Any] = []
    sums = window(tumbling(10), agg.sum("cents"), on_error="skip")
    run(from_iterable(events).pipe(event_time("at"), sums).to(collect(results)))
    assert [one.value for one in results] == [12]


@pytest.mark.parametrize(
    "last",
    [
        {"at": 3, "key": "late"},
        {"at": 26, "key": "wrong", "cents": "x"},
        # What "a" has so far was to be emitted when its window closed.
        {"at": 26, "key": "b"},
    ],
)
def test_without_a_store_nothing_is_kept_of_keys_without_open_windows(last: Any) -> None:
    async def play() -> int:
        box = inbox(10)
        cents = agg.fold(0, lambda total, event: total + int(event.get("cents", 0)))
        sums = window(tumbling(10), cents, "key", early=1, on_error="skip")
        running = box.pipe(event_time("at"), sums).to(for_each(bool)).start()
        for event in {"at": 1, "key": "a"}, {"at": 25, "key": "b"}, last:
            await box.put(event)
        await asyncio.sleep(2)
        keys: int = running.statistics()["stages"][2]["keys"]
        running.cancel()
        return keys

    assert run_virtual(play()) == 1


@pytest.mark.parametrize(
    "lengths",
    [{"early": 5, "keep": 60}, {"early": timedelta(seconds=5), "keep": timedelta(minutes=1)}],
)
def test_early_results_and_corrections_have_the_next_revision(lengths: dict[str, Any]) -> None:
    found: list[Any] = []

    async def main() -> None:
        box = inbox(10)
        counts = window(tumbling(10), agg.count(), **lengths)
        timed = event_time("at", idle=None, max_ahead=None)
        running = box.pipe(timed, counts).to(collect(found)).start()
        await box.put({"at": 101})
        await asyncio.sleep(7)
        await box.put({"at": 102})
        await box.put({"at": 112})
        await asyncio.sleep(0.1)
        await box.put({"at": 103})
        await asyncio.sleep(0.1)
        running.cancel()

    run_virtual(main())
    first = [(one.value, one.revision, one.is_final) for one in found if one.start == 100]
    assert first == [(1, 1, False), (2, 2, True), (3, 3, True)]


def test_two_sources_each_have_a_line_of_their_own_and_an_idle_one_holds_nothing_back() -> None:
    found: list[Any] = []

    async def main() -> None:
        one, other = inbox(10), inbox(10)
        timed = [box.pipe(event_time("at", max_ahead=None)) for box in (one, other)]
        counts = window(tumbling(10), agg.count())
        running = timed[0].pipe(ops.merge(timed[1]), counts).to(collect(found)).start()
        await one.put({"at": 101})
        await other.put({"at": 50})
        await one.put({"at": 125})
        await asyncio.sleep(20)
        assert found == []
        await one.put({"at": 126})
        await asyncio.sleep(15)
        # By now the other one is silent for 35 seconds.
        assert [window.start for window in found] == [50, 100]
        running.cancel()

    run_virtual(main())


def test_sources_with_times_in_one_field_keep_a_line_each_in_a_store(tmp_path: Path) -> None:
    store = Store(tmp_path / "state")
    results: list[Any] = []
    sources: list[Any] = []
    for number, times in enumerate([(1, 25), (3, 40)]):
        path = tmp_path / f"{number}.jsonl"
        path.write_text("".join(f'{{"at": {time}}}\n' for time in times))
        sources.append(read_jsonl(path, position=store).pipe(event_time("at", idle=None)))
    counts = window(tumbling(10), agg.count(), store=store)
    run(sources[0].pipe(ops.merge(sources[1]), counts).to(collect(results)))
    assert [(one.start, one.value) for one in results] == [(0, 2), (20, 1), (40, 1)]
    backend: Any = store._open()
    backend.open_to_read()
    names = [name for name, _ in backend.marks() if name.startswith("event_time")]
    backend.close()
    assert names == ["event_time at", "event_time at 2"]


def test_a_window_without_times_is_refused_when_it_is_built() -> None:
    with pytest.raises(BuildError, match="put event_time"):
        from_iterable([1]).pipe(window(tumbling(10), agg.count()))


def test_results_have_no_times_until_they_are_given_some() -> None:
    events = [{"at": at, "key": "a"} for at in (1, 12, 25, 61)]
    counts = from_iterable(events).pipe(event_time("at"), window(tumbling(10), agg.count(), "key"))
    with pytest.raises(BuildError, match='time="start"'):
        counts.pipe(window(tumbling(60), agg.sum("value")))

    sums: list[tuple[float, int]] = []
    add = stateful(lambda total, one: ((total or 0) + one.value, [total or 0]), "key")
    minutes = window(tumbling(60), agg.sum("value"), time="start")
    run(counts.pipe(minutes).to(for_each(lambda one: sums.append((one.start, one.value)))))
    assert sums == [(0, 3), (60, 1)]

    totals: list[int] = []
    run(counts.pipe(add).to(for_each(totals.append)))
    assert totals == [0, 1, 2, 3]


def test_a_window_inside_a_group_is_refused_with_what_to_do() -> None:
    counts = window(tumbling(10), agg.count(), "key")
    events = from_iterable([{"at": 1, "key": "a"}]).pipe(event_time("at"))
    refused = pytest.raises(BuildError, match=r"inside group_by\(each=...\) .* put window outside")
    with refused:
        events.pipe(group_by("key", idle=60, each=lambda group: group.map(dict).pipe(counts)))
    # Not seen before there is a key.
    grouped = group_by("key", idle=60, each=lambda group: group.map(group.key.join).pipe(counts))
    with refused:
        run(events.pipe(grouped, spread()).to(collect([])))


def test_event_time_behind_several_streams_is_refused_however_far_in_front_they_are() -> None:
    merged = from_iterable([1]).pipe(ops.merge(from_iterable([2])))
    for timed in event_time("at"), window(tumbling(10), agg.count(), time="at"):
        for stream in merged, merged.map(str):
            with pytest.raises(BuildError, match="give each of them an event_time of its own"):
                stream.pipe(timed)


def test_the_windows_of_several_streams_are_one() -> None:
    one, other = (from_iterable([{"at": at}]).pipe(event_time("at")) for at in (1, 2))
    counts = one.merge(other).pipe(window(tumbling(10), agg.count()))
    sums = window(tumbling(10), agg.sum("value"), time="start")
    found: list[Window[float]] = []
    run(counts.pipe(sums).to(collect(found)))
    assert [one.value for one in found] == [2]


def test_a_time_that_cannot_be_read_ends_the_pipeline_or_is_set_aside() -> None:
    events = [{"at": 1}, {"at": "soon"}, {}, {"at": float("nan")}, {"at": 1e12}, {"at": 2}]
    results: list[Any] = []
    counts = window(tumbling(10), agg.count())
    timed = event_time("at", on_error="skip")
    report = run_virtual(from_iterable(events).pipe(timed, counts).to(collect(results)).run())
    assert [one.value for one in results] == [2]
    assert report.statistics["stages"][1]["skipped"] == 4
    with pytest.raises(Exception, match="'soon' is not a time"):
        run(from_iterable(events).pipe(event_time("at"), counts).to(collect(results)))


def test_time_is_short_for_an_event_time_in_front() -> None:
    events = [{"at": 12}, {"at": 8}, {"at": 31}, {"at": 9}]
    found: dict[str, list[Any]] = {"long": [], "short": []}
    long = [event_time("at", 5), window(tumbling(10), agg.count())]
    short = [window(tumbling(10), agg.count(), time="at", lateness=5)]
    for name, stages in (("long", long), ("short", short)):
        run(from_iterable(events).pipe(*stages).to(collect(found[name])))
    assert [(one.start, one.value) for one in found["short"]] == [(0, 1), (10, 1), (30, 1)]
    assert found["short"] == found["long"]


def test_time_and_an_event_time_in_front_are_refused_together() -> None:
    timed = from_iterable([{"at": 1}]).pipe(event_time("at", 5))
    with pytest.raises(BuildError, match="reads the times that the event_time in front gives"):
        timed.pipe(window(tumbling(10), agg.count(), time="at", lateness=5))


@pytest.mark.parametrize("options", [{"lateness": 1}, {"keep": 5}, {"late": "stop"}])
def test_what_is_about_late_events_is_refused_by_processing_time(options: Any) -> None:
    with pytest.raises(BuildError, match="no event is late by the time at which it comes"):
        window(tumbling(10), agg.count(), time="processing", **options)


def test_lateness_without_a_time_is_refused() -> None:
    with pytest.raises(BuildError, match=r"give it to the event_time\(field, lateness\) in front"):
        window(tumbling(10), agg.count(), lateness=5)
    with pytest.raises(BuildError, match=r"window\(lateness=-1\)"):
        window(tumbling(10), agg.count(), time="at", lateness=-1)


def test_a_time_that_cannot_be_read_is_handled_as_the_window_says() -> None:
    found: list[Any] = []
    counts = window(tumbling(10), agg.count(), time="at", on_error="skip")
    run(from_iterable([{"at": 1}, {"at": "soon"}]).pipe(counts).to(collect(found)))
    assert [one.value for one in found] == [1]


# One that is reverted is given again by nobody, as no store has its window.
@pytest.mark.parametrize("policy", ["skip", "route", "revert"])
def test_results_that_fail_make_the_exit_status_3_although_their_events_were_counted_before(
    policy: str, tmp_path: Path
) -> None:
    def fail(result: Window[int]) -> Any:
        raise ValueError("odd")

    letters = MemorySink()
    on_error: Any = route(letters) if policy == "route" else policy
    events = [{"at": 10 * n} for n in range(4)]
    timed = from_iterable(events).pipe(event_time("at"), window(tumbling(10), agg.count()))
    report = run(timed.pipe(adaptive_flat_map(fail, on_error=on_error)).to(collect([])))
    assert (report.statistics["in"], report.statistics["failed"]) == (4, 0)
    assert report.statistics["errors"] == {"ValueError": 4}
    assert report.exit_status == 3
    assert ("4 routed" if policy == "route" else "4 skipped") in str(report)
