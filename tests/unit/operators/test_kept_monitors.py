"""Monitors in a store, and by event time."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from penstock import (
    Fixed,
    Store,
    adaptive_flat_map,
    collect,
    event_time,
    from_iterable,
    group_by,
    inbox,
    monitor,
    read_jsonl,
    run,
    spread,
    violations,
)
from penstock.streams.base.errors import BuildError
from penstock.streams.temporal import Violated, Violation
from penstock.streams.testing import MemorySink, MemorySource, run_virtual
from tests.helpers.until import until

SOON = "G(paid -> F[<=10s] sent)"
TESTS: dict[str, Any] = {name: {"type": name} for name in ("placed", "paid", "sent")}


def paid(at: float, key: int = 1, kind: str = "paid") -> dict[str, Any]:
    return {"at": at, "key": key, "type": kind}


def line(**fields: Any) -> str:
    return "".join(str(fields).replace("'", '"')) + "\n"


OPERATORS = pytest.mark.parametrize("operator", ["monitor", "violations"])


def stages(operator: str, formula: str, into: list[Any], **options: Any) -> tuple[Any, ...]:
    """The stage, with violations in a list, whichever of the two it is."""
    options = {"by": "key", **TESTS, **options}
    if operator == "monitor":
        return (monitor(formula, on_violation=collect(into), **options),)
    return (violations(formula, **options),)


@OPERATORS
def test_behind_event_time_silence_brings_a_deadline(operator: str) -> None:
    found: list[Any] = []

    async def story() -> None:
        box = inbox(9)
        timed: Any = event_time("at", idle=5, max_ahead=None)
        stage = stages(operator, SOON, found)
        sink = collect([]) if operator == "monitor" else collect(found)
        running = box.pipe(timed, *stage).to(sink).start()
        await box.put(paid(100))
        await asyncio.sleep(9.9)
        assert found == []
        await asyncio.sleep(0.2)
        assert [(one.key, one.deadline, one.at_end) for one in found] == [(1, 110, False)]
        running.cancel()

    run_virtual(story())


@OPERATORS
@pytest.mark.parametrize("timed", [[event_time("at")], []])
def test_without_a_store_an_event_of_a_source_that_forgets_passes_at_once(
    operator: str, timed: list[Any]
) -> None:
    async def story() -> None:
        source, sink = MemorySource([paid(0), paid(1, kind="sent")]), MemorySink(hold=True)
        options: dict[str, Any] = {} if timed else {"time": "at"}
        stage = stages(operator, SOON, [], **options)
        running = source.pipe(*timed, *stage).to(sink).start()
        await asyncio.sleep(1)
        for passed in range(2 if operator == "monitor" else 0):
            assert len(source.acked) == passed
            sink.accept()
            await asyncio.sleep(1)
        assert source.acked == [paid(0), paid(1, kind="sent")]
        await running.wait()

    run_virtual(story())


@OPERATORS
def test_of_no_events_at_all_without_a_key_the_end_judges(operator: str) -> None:
    for timed in [event_time("at")], []:
        found: list[Any] = []
        times: dict[str, Any] = {} if timed else {"time": "at"}
        sink = collect([]) if operator == "monitor" else collect(found)
        stage = stages(operator, f"{SOON} & F sent", found, by=None, **times)
        run(from_iterable([]).pipe(*timed, *stage).to(sink))
        assert [(one.key, one.index, one.at_end) for one in found] == [(None, 0, True)]


@OPERATORS
def test_a_deadline_passes_after_events_that_were_emitted_before_it_was_past(
    operator: str,
) -> None:
    found: list[Any] = []

    async def work(event: Any) -> Any:
        await asyncio.sleep(10 if event["type"] == "placed" else 0)
        return event

    async def story() -> None:
        box = inbox(9)
        timed: Any = event_time("at", 10, idle=None, max_ahead=None)
        slow: Any = adaptive_flat_map(work, Fixed(2))
        sink = collect([]) if operator == "monitor" else collect(found)
        running = box.pipe(timed, slow, *stages(operator, SOON, found)).to(sink).start()
        await box.put(paid(0))
        await asyncio.sleep(1)
        # When it is emitted, the deadline is not past; while it is on its way, another passes it.
        await box.put(paid(12, kind="placed"))
        await asyncio.sleep(1)
        await box.put(paid(30, key=2))
        await asyncio.sleep(20)
        assert [(one.key, one.index, one.deadline) for one in found] == [(1, 2, 10)]
        running.cancel()

    run_virtual(story())


ORDER = f"!sent W paid & {SOON}"


async def same(event: Any) -> Any:
    return event


def forgot(operator: str, events: list[Any], **options: Any) -> tuple[list[Any], list[int]]:
    """The key, index and deadline of each violation behind `event_time`, and the numbers of keys
    that were expired, evicted and unjudged; the same of events in one list and one by one."""
    together = forgot_of(operator, from_iterable(events), [], **options)
    one_by_one: Any = adaptive_flat_map(same, Fixed(1))
    assert forgot_of(operator, from_iterable(events), [one_by_one], **options) == together
    return together


def forgot_of(
    operator: str, source: Any, between: list[Any], **options: Any
) -> tuple[list[Any], list[int]]:
    found: list[Any] = []
    sink = collect([]) if operator == "monitor" else collect(found)
    stage = stages(operator, ORDER, found, **options)
    timed: Any = event_time("at", idle=None)
    report = run(source.pipe(timed, *between, *stage).to(sink))
    numbers = report.statistics["stages"][2 + len(between)]
    violations = [(one.key, one.index, one.deadline) for one in found]
    return sorted(violations, key=str), [
        numbers[name] for name in ("expired", "evicted", "unjudged")
    ]


@OPERATORS
def test_an_idle_key_begins_anew(operator: str) -> None:
    events = [paid(at, kind="sent") for at in (0, 5, 15)]
    # The tenth second belongs to it.
    assert forgot(operator, events, idle=10) == ([(1, 1, None)], [0, 0, 0])
    events += [paid(26, key=2, kind="placed"), paid(26, kind="sent")]
    assert forgot(operator, events, idle=10) == ([(1, 1, None), (1, 1, None)], [1, 0, 0])
    assert forgot(operator, events) == ([(1, 1, None)], [0, 0, 0])
    # That of a late event is the watermark.
    events = [paid(100, key=2, kind="placed"), paid(50, kind="sent"), paid(100, kind="sent")]
    assert forgot(operator, events, idle=10) == ([(1, 1, None)], [0, 0, 0])


@OPERATORS
def test_of_too_many_keys_the_one_used_longest_ago_begins_anew(operator: str) -> None:
    events = [paid(0), paid(1, key=2), paid(1, key=2, kind="sent"), paid(2), paid(3, key=3)]
    # Key 2 has nothing open.
    assert forgot(operator, [*events, paid(4, kind="sent")], max_keys=2) == (
        [(3, 1, 13)],
        [0, 1, 0],
    )
    events += [paid(4, key=4), paid(5, kind="sent"), paid(6, kind="sent")]
    assert forgot(operator, events, max_keys=2) == ([(1, 1, None), (4, 1, 14)], [0, 3, 2])


@OPERATORS
def test_a_key_that_has_begun_anew_is_not_among_them(operator: str) -> None:
    events = [paid(0), paid(0, key=2, kind="placed"), paid(1, key=2, kind="sent"), paid(2, key=3)]
    found, numbers = forgot(operator, events, max_keys=2, restart=True)
    assert (found[1:], numbers) == ([(2, 2, None), (3, 1, 12)], [0, 0, 0])
    events = [paid(0, kind="placed"), paid(20, key=2, kind="placed"), paid(21, key=3), paid(22)]
    assert forgot(operator, events, max_keys=2, idle=10) == (
        [(1, 1, 32), (3, 1, 31)],
        [1, 1, 0],
    )


@OPERATORS
def test_a_key_is_forgotten_after_its_deadline_if_that_is_past(operator: str) -> None:
    events = [paid(0), paid(11, key=2, kind="placed"), paid(12)]
    assert forgot(operator, events, max_keys=1) == ([(1, 1, 10), (1, 1, 22)], [0, 2, 0])
    assert forgot(operator, events, max_keys=1, restart=True) == (
        [(1, 1, 10), (1, 1, 22)],
        [0, 1, 0],
    )


@OPERATORS
def test_after_a_deploy_there_is_no_false_alarm_and_none_is_missed(
    operator: str, tmp_path: Path
) -> None:
    path, found = tmp_path / "in.jsonl", list[Violation[Any]]()
    store = Store.memory()

    def started(*, follow: bool) -> Any:
        source: Any = read_jsonl(path, position=store, follow=follow)
        timed: Any = event_time("at", lateness=2)
        first = stages(operator, SOON, found, store=store)
        order = violations("!sent W paid", "key", store=store, name="order", **TESTS)
        if operator == "monitor":
            return source.pipe(timed, *first, order).to(collect(found)).start()
        seen = monitor("!sent W paid", "key", store=store, on_violation=collect(found), **TESTS)
        return source.pipe(timed, seen, *first).to(collect(found)).start()

    async def story() -> None:
        with path.open("w", encoding="utf-8") as file:
            file.write(line(**paid(100)) + line(**paid(101, key=2)))
        running = started(follow=True)
        await until(lambda: running.statistics()["in"] == 2)
        await running.drain()
        await running.wait()
        assert found == []
        with path.open("a", encoding="utf-8") as file:
            # It comes after a later one, and in time.
            file.write(line(**paid(113, key=3)) + line(**paid(111, key=2, kind="sent")))
            file.write(line(**paid(114, key=3, kind="sent")))
        await started(follow=False).wait()
        assert [(one.key, one.formula, one.deadline) for one in found] == [(1, SOON, 110)]

    asyncio.run(story())


def test_a_decided_key_stays_decided_in_the_next_run() -> None:
    store, found = Store.memory(), list[Any]()
    for _ in range(2):
        watch = violations("!sent W paid", "key", store=store, **TESTS)
        run(from_iterable([paid(0, kind="sent")]).pipe(watch).to(collect(found)))
    assert len(found) == 1


def test_stop_ends_the_pipeline_and_the_event_comes_again(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text(line(**paid(1)) + line(**paid(2, kind="sent")), encoding="utf-8")
    store, sink = Store.memory(), MemorySink()
    watch = monitor("G !sent", "key", on_violation="stop", store=store, **TESTS)
    for _ in range(2):
        with pytest.raises(Violated, match="is violated by event 2 of 1") as raised:
            run(read_jsonl(path, position=store).pipe(watch).to(sink))
        assert any("'monitor', on the event" in note for note in raised.value.__notes__)
    assert sink.values == [paid(1)]


def test_a_formula_that_has_changed_is_refused_over_kept_progress() -> None:
    store = Store.memory()

    def watched(formula: str) -> None:
        stage = violations(formula, "key", store=store, name="watch", **TESTS)
        run(from_iterable([paid(0, kind="sent")]).pipe(stage).to(collect([])))

    watched("G !sent")
    with pytest.raises(BuildError, match="has states of the stage 'watch' by"):
        watched("G !paid")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"idle": 60}, "none is forgotten"),
        ({"max_keys": 9}, "none is forgotten"),
        ({}, "put event_time"),
        ({"store": "file"}, "give a Store"),
    ],
)
@OPERATORS
def test_what_does_not_go_together_is_refused(operator: str, options: Any, said: str) -> None:
    with pytest.raises(BuildError, match=said):
        from_iterable([]).pipe(*stages(operator, SOON, [], **{"store": Store.memory(), **options}))


@OPERATORS
def test_times_of_its_own_are_refused_behind_event_time(operator: str) -> None:
    for store in (None, Store.memory()):
        stage = stages(operator, SOON, [], time="at", store=store)
        with pytest.raises(BuildError, match="leave out its own time=, lateness= and max_ahead="):
            from_iterable([]).pipe(event_time("at"), *stage)


@pytest.mark.parametrize("options", [{"store": Store.memory()}, {"time": "at"}])
def test_inside_a_group_a_store_and_times_are_refused(options: Any) -> None:
    formula = SOON if "time" in options else "G !sent"
    stage = stages("violations", formula, [], **options)
    grouped = group_by("key", each=lambda group: group.pipe(*stage), idle=9)
    with pytest.raises(BuildError, match="put violations outside"):
        run(from_iterable([paid(0)]).pipe(grouped, spread()).to(collect([])))
