"""What `penstock draw` prints is an upper bound of the events that are unfinished at once."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from itertools import count
from typing import Any
from unittest.mock import patch

import pytest
from reactivex import operators as stock

from penstock import Flowable, for_each, from_async_iterable, from_iterable
from penstock import ops as _ops
from penstock.command.pipelines.draw import as_text
from penstock.streams.boundary.inner_stream import Items
from penstock.streams.testing import run_virtual
from tests.helpers.random_pipeline import FEATURES, RandomPipeline

# What reactivex says of its types does not fit a lambda.
ops: Any = _ops

# One in so many of the --walks is how often each of the features is made.
SHARE = 60


def test_what_draw_prints_is_an_upper_bound_of_unfinished_events(
    pytestconfig: pytest.Config,
) -> None:
    """A random walk over pipelines, until each of the features was made as often as --walks says.

    `make soak` makes more of them.

    `--seed` gives the same ones again.
    """
    seed = pytestconfig.option.seed
    times = max(1, pytestconfig.option.walks // SHARE)
    made_of: Counter[str] = Counter()
    near = 0
    for number in count():
        if all(made_of[feature] >= times for feature in FEATURES):
            break
        made = RandomPipeline(random.Random(f"{seed} {number}"))
        made_of.update(made.features)
        text = as_text(made.pipeline.describe(made.limit), len(made.pipeline.sinks))
        try:
            run_virtual(made.run())
        except Exception as error:
            error.add_note(f"pipeline {number}\n{text}")
            raise
        assert made.peak <= made.most, f"pipeline {number}: {made.peak:,} unfinished\n{text}"
        on_disk = made.peak_on_disk
        assert on_disk <= made.most_on_disk, f"pipeline {number}: {on_disk:,} on disk\n{text}"
        near += made.peak * 2 > made.most
    print(f"of {number} pipelines:", dict(made_of), f"more than half full: {near}")


def _one(value: Any) -> Flowable[Any]:
    async def items() -> AsyncIterator[Any]:
        # All that are open have a value before the first one is taken.
        await asyncio.sleep(1)
        yield value

    return from_async_iterable(items)


OPENING: dict[str, list[Any]] = {
    "flat_map": [ops.flat_map(_one)],
    "flat_map_indexed": [ops.flat_map_indexed(lambda value, _: _one(value))],
    "flat_map of 2": [ops.flat_map(_one, 2)],
    "concat_map": [ops.concat_map(_one)],
    "merge_all": [ops.map(_one), ops.merge_all()],
    "merge of 2": [ops.map(_one), stock.merge(max_concurrent=2)],
    "concat_all": [ops.map(_one), ops.concat_all()],
    "switch_map": [ops.switch_map(_one)],
    "switch_latest": [ops.map(_one), ops.switch_latest()],
    "exclusive": [ops.map(_one), ops.exclusive()],
    "exhaust_map": [ops.exhaust_map(_one)],
}


@pytest.mark.parametrize("name", OPENING)
def test_what_a_stage_holds_counts_the_events_of_the_streams_inside(name: str) -> None:
    inside = list[Items]()
    init = Items.__init__

    def made(items: Items, *arguments: Any) -> None:
        inside.append(items)
        init(items, *arguments)

    async def story() -> tuple[int, int]:
        peak = 0

        async def slow(_: Any) -> None:
            nonlocal peak
            await asyncio.sleep(5)
            stage = running.statistics()["stages"][last.number - 1]
            waiting = sum(items._event is not None for items in inside)
            peak = max(peak, stage["waiting"] + waiting)

        stream: Any = from_iterable(range(200)).pipe(*OPENING[name])
        pipeline = stream.to(for_each(slow))
        last = pipeline.describe()[-2]
        async with pipeline.start() as running:
            pass
        assert last.holds is not None
        return peak, last.holds

    with patch.object(Items, "__init__", made):
        peak, most = run_virtual(story())
    # One of the events inside is with the sink.
    assert most - 2 <= peak <= most


LISTS: dict[str, tuple[Any, int]] = {
    "of 1": (ops.buffer_with_count(1), 1),
    "of 16": (ops.buffer_with_count(16), 16),
    "that overlap": (ops.buffer_with_count(4, 1), 4),
    "with gaps": (ops.buffer_with_count(2, 5), 5),
    "of 1 by time": (ops.buffer_with_time_or_count(2, 1), 1),
    "of 16 by time": (ops.buffer_with_time_or_count(2, 16), 16),
}


@pytest.mark.parametrize("name", LISTS)
def test_lists_hold_as_many_events_as_their_numbers_say(name: str) -> None:
    async def story() -> None:
        peak = 0

        async def slow(values: list[int]) -> None:
            nonlocal peak
            await asyncio.sleep(3)
            numbers = running.statistics()
            peak = max(peak, numbers["in"] - numbers["finished"])

        stream: Any = from_iterable(range(50)).pipe(lists)
        pipeline = stream.to(for_each(slow))
        stages = pipeline.describe()
        async with pipeline.start() as running:
            pass
        assert (stages[1].holds, stages[2].bounded) == (held, held)
        assert held <= peak <= 2 * held

    lists, held = LISTS[name]
    run_virtual(story())


_MADE: dict[str, list[Any]] = {
    **OPENING,
    "publish": [ops.publish(lambda one: one.pipe(ops.buffer_with_count(9)))],
    "replay": [ops.replay(2, mapper=lambda one: one)],
    "catch": [ops.catch(lambda error, source: source)],
    "on_error_resume_next": [ops.on_error_resume_next(lambda error: _one(1))],
    "buffer_when": [ops.buffer_when(lambda: _one(1))],
    "delay_with_mapper": [ops.delay_with_mapper(_one)],
}

_NOT_MADE: dict[str, list[Any]] = {
    "publish": [ops.publish()],
    "catch": [ops.catch(from_iterable([1]))],
    "on_error_resume_next": [ops.on_error_resume_next(from_iterable([1]))],
    "buffer": [ops.buffer(from_iterable([1]))],
    "merge": [ops.merge(from_iterable([1]))],
    "windows": [ops.window_with_count(3), ops.flat_map(lambda window: window)],
    "map": [ops.map(str)],
}


@pytest.mark.parametrize("name", _MADE)
def test_draw_says_that_streams_which_are_made_later_hold_more(name: str) -> None:
    pipeline = from_iterable(range(9)).pipe(*_MADE[name]).to(for_each(print))
    last = pipeline.describe()[-2]
    assert (
        as_text(pipeline.describe(), 1)
        .rstrip()
        .endswith(f", and what the streams made by {last} hold.")
    )


@pytest.mark.parametrize("name", _NOT_MADE)
def test_draw_says_nothing_of_other_streams_where_there_are_none_but_those_that_it_shows(
    name: str,
) -> None:
    pipeline = from_iterable(range(9)).pipe(*_NOT_MADE[name]).to(for_each(print))
    assert as_text(pipeline.describe(), 1).rstrip().endswith("at once.")


def test_draw_shows_the_values_that_are_kept_for_later_readers() -> None:
    pipeline = from_iterable(range(9)).pipe(ops.replay(5_000), ops.ref_count()).to(for_each(print))
    assert "keeps 5,000 values, and as many for each reader that comes later" in as_text(
        pipeline.describe(), 1
    )
