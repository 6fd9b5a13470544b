"""Stages that were not known before a pipeline ran have numbers that no other stage has."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import Flowable, Pipeline, for_each, from_iterable, ops
from penstock.streams.pipelines.running import Running
from penstock.streams.runtime.places import LateNumbers


def _mapper(shared: Flowable[int]) -> Flowable[Any]:
    """Reads the shared stream twice, once beside another one."""
    letters = shared.pipe(ops.map(str), ops.zip(from_iterable(range(3))))
    return shared.pipe(ops.map(lambda n: n + 1), ops.merge(letters))


def _published() -> Pipeline:
    return (
        from_iterable(range(5))
        .pipe(ops.publish(_mapper), ops.map(lambda value: value))
        .to(for_each(lambda value: None))
    )


async def _ended(pipeline: Pipeline) -> tuple[Running, dict[str, Any]]:
    async with pipeline.start() as running:
        running.record()
        await running.wait()
        return running, running.statistics()


async def test_no_two_stages_of_a_published_stream_have_the_same_number() -> None:
    running, numbers = await _ended(_published())
    stages = numbers["stages"]
    known = [(stage["stage"], stage["name"]) for stage in stages if "read_by" not in stage]
    assert known == [(stage.number, stage.name) for stage in running.describe()]
    late = [stage for stage in stages if "read_by" in stage]
    assert sorted(stage["name"] for stage in late) == [
        "from_iterable",
        "map",
        "map",
        "merge",
        "zip",
    ]
    assert {stage["read_by"] for stage in late} == {2}
    every = [stage["stage"] for stage in stages]
    assert len(set(every)) == len(every)
    assert min(stage["stage"] for stage in late) > running.describe()[-1].number
    assert running.stage_statistics(late[0]["stage"]) == late[0]


async def test_what_a_mapper_reads_is_not_what_its_stage_has_sent() -> None:
    _, numbers = await _ended(_published())
    (publish,) = [stage for stage in numbers["stages"] if stage["name"] == "publish"]
    # Five numbers, and three pairs.
    assert publish["sent"] == 8
    assert "sent_to" not in publish


async def test_an_error_names_the_stage_of_the_mapper_in_which_it_was_raised() -> None:
    pipeline = (
        from_iterable(range(5))
        .pipe(
            ops.publish(lambda shared: shared.pipe(ops.map(lambda n: 1 // (n - 3)))),
            ops.map(lambda value: value),
        )
        .to(for_each(lambda value: None))
    )
    with pytest.raises(ZeroDivisionError) as raised:
        await _ended(pipeline)
    # Stage 3 is the map below, and 4 the sink.
    assert raised.value.__notes__ == ["in stage 5 'map', on the event 3"]


async def test_a_stream_that_is_read_again_has_the_numbers_of_the_one_before() -> None:
    pipeline = (
        from_iterable(range(5))
        .pipe(ops.publish(_mapper), ops.repeat(20), ops.map(lambda value: value))
        .to(for_each(lambda value: None))
    )
    _, numbers = await _ended(pipeline)
    every = [stage["stage"] for stage in numbers["stages"]]
    assert len(set(every)) == len(every)
    # A reading may begin before what was listed for the one before is left.
    assert max(every) < 25


def test_the_lowest_number_that_is_free_is_taken() -> None:
    numbers = LateNumbers()
    numbers.begin_after(4)
    assert [numbers.take() for _ in range(4)] == [5, 6, 7, 8]
    numbers.free(7)
    numbers.free(5)
    assert [numbers.take() for _ in range(3)] == [5, 7, 9]
