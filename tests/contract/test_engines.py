from __future__ import annotations

from typing import Any

import pytest

from penstock import (
    Backoff,
    Fixed,
    adaptive_flat_map,
    batch,
    collect,
    distinct_within,
    from_iterable,
    group_by,
    retry,
    route,
    spread,
    write_jsonl,
)
from penstock.streams.pipelines.pipeline import Engine
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.testing import CountedSource, MemorySink
from penstock.streams.testing.plugin import Run


async def handler(value: dict[str, int]) -> int:
    if value["id"] < 0:
        raise ValueError("below 0")
    return value["id"]


def events(*ids: int) -> list[dict[str, int]]:
    return [{"id": one} for one in ids]


def test_an_engines_source_takes_the_place_of_the_pipelines_own(run: Run) -> None:
    own = CountedSource(events(1, 2))
    into: list[int] = []
    pipeline = own.pipe(group_by("id"), spread(), adaptive_flat_map(handler)).to(collect(into))

    async def story() -> None:
        engine = Engine(from_iterable(events(7, 8)), "stop")
        async with pipeline.start(engine=engine):
            pass
        assert (into, own.emitted) == ([7, 8], 0)
        await pipeline.run()
        assert into == [7, 8, 1, 2]

    run(story())


async def batched(values: list[dict[str, int]]) -> list[int]:
    return [await handler(value) for value in values]


@pytest.mark.parametrize("kind", ["adaptive_flat_map", "batch"])
def test_a_stage_without_a_choice_of_its_own_does_what_the_engine_says(run: Run, kind: str) -> None:
    letters: MemorySink = MemorySink()
    into: list[int] = []
    working: Any = batch(batched) if kind == "batch" else adaptive_flat_map(handler, Fixed(1))
    pipeline = from_iterable(events()).pipe(working).to(collect(into))

    async def story() -> None:
        engine = Engine(from_iterable(events(1, -1, 2)), retry(3, then=route(letters)))
        async with pipeline.start(engine=engine) as running:
            pass
        assert running.statistics()["failed"] == 1

    run(story())
    assert into == [1, 2]
    (letter,) = letters.values
    assert (letter.value, letter.attempts) == ({"id": -1}, 3)


@pytest.mark.parametrize("kind", ["adaptive_flat_map", "batch"])
def test_a_stage_that_retries_by_itself_does_in_the_end_what_the_engine_says(
    run: Run, kind: str
) -> None:
    letters: MemorySink = MemorySink()
    into: list[int] = []
    policy = retry(2, Backoff())
    working: Any = (
        batch(batched, on_error=policy)
        if kind == "batch"
        else adaptive_flat_map(handler, Fixed(1), on_error=policy)
    )
    pipeline = from_iterable(events()).pipe(working).to(collect(into))

    async def story() -> None:
        engine = Engine(from_iterable(events(1, -1, 2)), retry(3, then=route(letters)))
        async with pipeline.start(engine=engine):
            pass

    run(story())
    assert into == [1, 2]
    (letter,) = letters.values
    assert (letter.value, letter.attempts) == ({"id": -1}, 2)


def test_a_stage_that_skips_goes_on_skipping_on_an_engine(run: Run) -> None:
    letters: MemorySink = MemorySink()
    pipeline = from_iterable(events()).pipe(adaptive_flat_map(handler, on_error="skip"))

    async def story() -> None:
        engine = Engine(from_iterable(events(-1)), route(letters))
        async with pipeline.to(MemorySink()).start(engine=engine):
            pass

    run(story())
    assert letters.values == []


@pytest.mark.parametrize(("by", "left"), [("id", [1, 1]), ("other", [1])])
def test_what_an_engine_keeps_unique_is_not_deduplicated_again(
    run: Run, by: str, left: list[int]
) -> None:
    into: list[dict[str, int]] = []
    pipeline = from_iterable(events()).pipe(distinct_within(10, by="id")).to(collect(into))

    async def story() -> None:
        engine = Engine(from_iterable(events(1, 1)), "stop", unique_by=by)
        async with pipeline.start(engine=engine):
            pass

    run(story())
    assert [value["id"] for value in into] == left


def test_stages_describe_their_keys_and_windows() -> None:
    pipeline = (
        from_iterable(events())
        .pipe(
            distinct_within(10, by="id"), group_by("client"), spread(), adaptive_flat_map(handler)
        )
        .to(write_jsonl())
    )
    _, distinct, group, *_ = pipeline.describe()
    assert (distinct.placement.by, distinct.placement.seconds) == ("id", 10)
    assert (group.placement.by, group.placement.seconds) == ("client", None)
    assert StageInfo("none").placement.by is None
