"""A stage that ends events before their results are in a sink may not read what is forgotten."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from reactivex import operators as rx

from penstock import (
    Flowable,
    Store,
    WorkPool,
    collect,
    count_over_time,
    distinct_within,
    from_iterable,
    group_by,
    inbox,
    monitor,
    ops,
    read_jetstream,
    read_jsonl,
    read_kafka,
    read_lines,
    read_table,
    retry,
    spread,
    stateful,
)
from penstock.streams.base.errors import BuildError, PenstockError
from penstock.streams.pipelines.pipeline import Engine
from penstock.streams.testing import MemorySource, run_virtual

ROWS = [(0, 10), (2, 5)]

FORGETTING: dict[str, Callable[[], Flowable[Any]]] = {
    "memory": lambda: MemorySource(ROWS),
    "read_table": lambda: read_table("sqlite:///orders.db"),
    "read_jetstream": lambda: read_jetstream("orders"),
    "read_kafka": lambda: read_kafka("orders", "bills", "localhost:9092"),
    "read_jsonl": lambda: read_jsonl("a.jsonl", position="a.pos"),
    "read_lines": lambda: read_lines("a.txt", position="a.pos"),
    "jobs": lambda: WorkPool().work(abs).flowable,
}


def count(source: Flowable[Any]) -> Flowable[Any]:
    return source.pipe(count_over_time(begin=0, end=1))


READERS: dict[str, Callable[[Flowable[Any]], Flowable[Any]]] = {
    "directly": count,
    "below others": lambda source: count(source.pipe(ops.map(tuple), monitor("G true"))),
    "below duplicates": lambda source: count(source.pipe(distinct_within(1, by=0))),
    "of a merge": lambda source: count(from_iterable(ROWS).pipe(ops.merge(source))),
    "of a merge in a merge": lambda source: count(
        from_iterable(ROWS).pipe(ops.merge(from_iterable(ROWS).pipe(ops.concat(source))))
    ),
    "shared": lambda source: count(source.pipe(ops.share())),
    "in groups": lambda source: source.pipe(group_by(0, each=count, idle=1), spread()),
    "other values": lambda source: from_iterable(ROWS).pipe(rx.zip_latest(source)),
    "other last values": lambda source: from_iterable(ROWS).pipe(ops.fork_join(source)),
}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
@pytest.mark.parametrize("make", FORGETTING.values(), ids=FORGETTING)
def test_it_is_refused_when_it_is_built(
    make: Callable[[], Flowable[Any]], read: Callable[[Flowable[Any]], Flowable[Any]]
) -> None:
    source = make()
    with pytest.raises(BuildError, match="acknowledges events before their results are in a sink"):
        read(source)


def test_the_error_names_the_stage_and_the_source() -> None:
    with pytest.raises(BuildError) as refused:
        count(read_table("sqlite:///orders.db").pipe(ops.map(tuple)))
    assert "stage 4 'count_over_time' acknowledges" in str(refused.value)
    assert "stage 1 'read_table' does not give again" in str(refused.value)
    with pytest.raises(BuildError, match="'count_over_time' in stage 2 'group_by' acknowledges"):
        MemorySource(ROWS).pipe(group_by(0, each=count, idle=1))


@pytest.mark.parametrize(
    "read",
    [
        lambda source: source.pipe(monitor("G true")),
        lambda source: source.pipe(ops.buffer(from_iterable([1]))),
        lambda source: from_iterable(ROWS).pipe(ops.buffer(source)),
        lambda source: from_iterable(ROWS).pipe(ops.take_until(source)),
        lambda source: count(from_iterable(ROWS)).pipe(ops.merge(source)),
        lambda source: source.pipe(group_by(0, each=lambda group: group.pairwise(), idle=1)),
    ],
)
def test_what_keeps_events_or_reads_ticks_is_not_refused(read: Any) -> None:
    read(MemorySource(ROWS))


def test_what_begins_anew_with_each_run_may_be_counted(tmp_path: Path) -> None:
    count(read_jsonl(tmp_path / "a.jsonl"))


def test_what_an_engine_puts_in_place_of_the_source_is_refused_when_the_run_starts() -> None:
    engine = Engine(MemorySource(ROWS), retry(1))
    grouped = from_iterable(ROWS).pipe(group_by(0, each=count, idle=1), spread())

    async def story() -> None:
        for stream in (count(from_iterable(ROWS)), grouped):
            with pytest.raises(BuildError, match="reads the events from servers"):
                stream.to(collect([])).start(engine=engine)

    run_virtual(story())


def test_a_stage_with_states_is_refused_on_an_engine_when_the_run_starts() -> None:
    engine = Engine(MemorySource(ROWS), retry(1))
    states: Any = stateful(lambda n, row: (n, [row]), 0, start=0, store=Store.memory())

    async def story() -> None:
        with pytest.raises(BuildError, match="run such a pipeline in one process"):
            from_iterable(ROWS).pipe(states).to(collect([])).start(engine=engine)

    run_virtual(story())


def test_a_report_names_the_sources_whose_events_the_next_run_does_not_know(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"n": 1}\n')

    async def reported(source: Flowable[Any], kept: Store | None) -> tuple[list[int], str]:
        stage: Any = stateful(lambda n, row: (n, [row]), lambda _: 0, start=0, store=kept)
        report = await source.pipe(stage).to(collect([])).run()
        return report.statistics["unmarked"], str(report)

    async def story() -> None:
        store = Store.memory()
        numbers, text = await reported(from_iterable(ROWS), store)
        assert numbers == [1]
        assert "stage 1 'from_iterable' does not record in the store which events" in text
        both = read_jsonl(path, position=store).pipe(ops.merge(read_jsonl(path)))
        assert (await reported(both, store))[0] == [2]
        assert (await reported(read_jsonl(path, position=store), store))[0] == []
        assert (await reported(from_iterable(ROWS), None))[0] == []

    run_virtual(story())


def test_an_event_of_a_stream_that_was_made_in_the_run_is_not_acknowledged() -> None:
    source = MemorySource(ROWS)
    made = from_iterable([1]).pipe(ops.flat_map(lambda _: source))

    async def story() -> None:
        with pytest.raises(PenstockError, match="'count_over_time' acknowledges events before"):
            await count(made).to(collect([])).run()

    run_virtual(story())
    assert not source.acked


def test_the_error_in_the_run_names_the_stage_the_source_and_what_to_do() -> None:
    made = from_iterable([1]).pipe(ops.flat_map(lambda _: MemorySource(ROWS)))

    async def story() -> None:
        with pytest.raises(PenstockError) as failed:
            await count(made).to(collect([])).run()
        said = str(failed.value)
        assert "stage 4 'count_over_time' acknowledges events" in said
        assert "'memory' does not give again" in said
        assert "Read what can be read again" in said

    run_virtual(story())


@pytest.mark.parametrize("operator", [rx.zip_latest, ops.fork_join])
def test_a_stream_made_in_the_run_is_not_acknowledged_beside_another(operator: Any) -> None:
    source = MemorySource(ROWS)
    made = from_iterable([1]).pipe(ops.flat_map(lambda _: source))

    async def story() -> None:
        with pytest.raises(PenstockError, match="acknowledges events before"):
            await from_iterable(ROWS).pipe(operator(made)).to(collect([])).run()

    run_virtual(story())
    assert not source.acked


def test_a_caller_who_waits_for_its_event_gets_the_error() -> None:
    rows = inbox(1)

    async def story() -> None:
        running = count(rows).to(collect([])).start()
        with pytest.raises(PenstockError, match="acknowledges events before"):
            await rows.put((0, 1), wait=True)
        with pytest.raises(PenstockError):
            await running.wait()

    run_virtual(story())
