"""What a member of a group says of its work, where other members find it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import (
    Fixed,
    Pipeline,
    Running,
    adaptive_flat_map,
    collect,
    group_by,
    read_kafka,
    retry,
    route,
    spread,
    write_kafka,
)
from penstock.streams.delivery.trial import HELD
from penstock.streams.kafka.offsets.metadata import Metadata
from penstock.streams.kafka.offsets.state import Progress, State, state_of
from penstock.streams.pipelines.pipeline import Engine
from penstock.streams.testing.plugin import Run
from tests.helpers.kafka.metadata import metadata_of, said_in
from tests.helpers.kafka.model import Broker, model_of, numbers

COUNTS = st.integers(0, 2**63)
RESTORING = st.lists(st.builds(Progress, COUNTS, COUNTS, COUNTS, COUNTS), max_size=5).map(tuple)


@given(
    state=st.builds(
        State,
        *(st.integers(0, 2**32 - 1), COUNTS, COUNTS, COUNTS, COUNTS),
        *(st.none() | COUNTS, RESTORING),
    ),
    noted=st.booleans(),
    ranges=st.lists(st.integers(1, 50), max_size=9),
)
def test_a_state_is_found_behind_all_else_and_changes_nothing_of_it(
    state: State, noted: bool, ranges: list[int]
) -> None:
    finished = [(60 * at + 1, 60 * at + 1 + size) for at, size in enumerate(ranges)]
    notes = [HELD] if noted else []
    said = said_in(metadata_of(0, finished, *notes, state))
    assert said == Metadata(finished, HELD if noted else None, state)


def test_a_state_is_of_the_member_that_has_written_it() -> None:
    state = state_of("one", {"in_flight": 1, "waiting": 2, "finished": 3, "failed": 4})
    assert (state.is_of("one"), state.is_of("two")) == (True, False)
    assert state[1:] == (1, 2, 3, 4, None, ())


def member(name: str, work: Any, *, transactional: bool = False) -> tuple[Pipeline, Engine]:
    """A pipeline as `penstock run --on` runs it."""
    letters = collect(list[Any]())
    source = read_kafka(
        "t", "g", on_bad_record=route(letters), attempts=3, config={"client.id": name}
    )
    sink: Any = write_kafka("out", transactional=True) if transactional else collect(list[Any]())
    call = adaptive_flat_map(work, limit=Fixed(4))
    pipeline = read_kafka("t", "g").pipe(group_by("n"), spread(), call).to(sink)
    return pipeline, Engine(source, retry(1, then=route(letters)))


def states(broker: Broker) -> dict[int, State | None]:
    return {number: said_in(text).state for (_, number), (_, text) in broker.committed.items()}


@pytest.mark.parametrize("transactional", [False, True])
def test_a_member_says_what_it_does_beside_its_first_partition_as_it_changes(
    run: Run, transactional: bool
) -> None:
    broker = Broker(2)
    may_end = asyncio.Event()

    async def work(value: dict[str, int]) -> Any:
        if value["n"] >= 20:
            await may_end.wait()
        if value["n"] == 3:
            raise ValueError
        return value

    async def story() -> None:
        broker.write(*numbers(0, 10), partition=0)
        broker.write(*numbers(20, 30), partition=1)
        with model_of(broker):
            pipeline, engine = member("one", work, transactional=transactional)
            running = pipeline.start(engine=engine)
            await asyncio.sleep(5)
            expected = running.statistics()
            assert (expected["in_flight"], expected["waiting"]) == (4, 6)
            assert states(broker) == {0: state_of("one", expected), 1: None}
            may_end.set()
            await asyncio.sleep(5)
            after = running.statistics()
            assert (after["finished"], after["failed"], after["unfinished"]) == (19, 1, 0)
            assert states(broker) == {0: state_of("one", after), 1: None}
            commits = broker.commits
            await asyncio.sleep(20)
            # Nothing changes, so the offsets are committed again only for the session.
            assert broker.commits - commits <= 4
            await running.drain(10)
            # What is over says nothing any more.
            assert states(broker) == {0: None, 1: None}

    run(story())


def test_a_pipeline_without_states_that_move_says_what_it_does_only_on_many_machines(
    run: Run,
) -> None:
    broker = Broker(1)

    async def work(value: Any) -> Any:
        return value

    async def story() -> None:
        broker.write(*numbers(0, 10), partition=0)
        with model_of(broker):
            pipeline, _ = member("one", work)
            running: Running = pipeline.start()
            await asyncio.sleep(5)
            assert broker.committed == {("t", 0): (10, "")}
            await running.drain(10)

    run(story())


def test_what_is_finished_has_less_room_beside_what_a_member_says(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.streams.kafka.offsets.partition.METADATA", 200)
    broker = Broker(1)

    async def work(value: dict[str, int]) -> Any:
        if value["n"] % 2 == 0:
            await asyncio.Event().wait()
        return value

    async def story() -> None:
        with model_of(broker):
            pipeline, engine = member("one", work)
            broker.write(*numbers(0, 3000), partition=0)
            running = pipeline.start(engine=engine, limit=(2000, 2000))
            await asyncio.sleep(10)
            _, text = broker.committed["t", 0]
            assert said_in(text).state == state_of("one", running.statistics())
            assert 150 < len(text) <= 200
            running.cancel()
            await running.wait()

    run(story())


def test_what_is_finished_is_known_to_the_next_reader_beside_what_a_member_said(run: Run) -> None:
    broker = Broker(1)
    found: list[dict[str, int]] = []

    async def story() -> None:
        broker.write(*numbers(0, 10))
        state = state_of("one", {"in_flight": 1, "waiting": 2, "finished": 3, "failed": 4})
        broker.committed["t", 0] = 5, metadata_of(5, [(7, 9)], state)
        with model_of(broker):
            running = read_kafka("t", "g").to(collect(found)).start()
            await asyncio.sleep(5)
            await running.drain(10)

    run(story())
    assert [value["n"] for value in found] == [5, 6, 9]
