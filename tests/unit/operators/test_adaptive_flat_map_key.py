"""`adaptive_flat_map(key=)` is `group_by`, `spread` and itself."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock import Flowable, adaptive_flat_map, from_iterable, group_by, spread
from penstock.streams.base.errors import BuildError
from penstock.streams.testing import MemorySink
from penstock.streams.testing.plugin import Run

EVENTS = [{"client": n % 3, "n": n} for n in range(12)]


async def work(event: dict[str, int]) -> tuple[int, int]:
    # Later events of a key take less time, so they would overtake without their turns.
    await asyncio.sleep(1 / (1 + event["n"]))
    return event["client"], event["n"]


def in_words(flow: Flowable[Any]) -> Flowable[Any]:
    return flow.pipe(group_by("client"), spread(), adaptive_flat_map(work, 8))


def by_key(flow: Flowable[Any]) -> Flowable[Any]:
    return flow.pipe(adaptive_flat_map(work, 8, key="client"))


def test_the_stages_of_a_keyed_handler_are_those_of_the_three_operators() -> None:
    written, short = (
        make(from_iterable(EVENTS)).to(MemorySink()).describe() for make in (in_words, by_key)
    )
    told = [(one.name, one.detail, one.bound, one.note) for one in short]
    assert told == [(one.name, one.detail, one.bound, one.note) for one in written]
    assert [one.name for one in short][1:-1] == ["group_by", "spread", "adaptive_flat_map"]


def test_a_keyed_handler_has_the_results_of_the_three_operators_at_the_same_times(
    run: Run,
) -> None:
    def results(make: Any) -> list[tuple[float, Any]]:
        seen: list[tuple[float, Any]] = []

        async def story() -> None:
            loop = asyncio.get_running_loop()
            begun = loop.time()
            async for value in make(from_iterable(EVENTS)):
                seen.append((round(loop.time() - begun, 6), value))

        run(story())
        return seen

    short = results(by_key)
    assert short == results(in_words)
    for client in range(3):
        own = [n for _, (of, n) in short if of == client]
        assert own == sorted(own)


def test_a_key_may_be_a_function_or_an_index(run: Run) -> None:
    async def story() -> list[Any]:
        pairs = from_iterable([("a", 1), ("b", 2), ("a", 3)])
        one = adaptive_flat_map(str, key=lambda pair: pair[0])
        return (
            await pairs.pipe(one).to_list()
            + await pairs.pipe(adaptive_flat_map(str, key=0)).to_list()
        )

    assert len(run(story())) == 6


@pytest.mark.parametrize(
    "stages",
    [
        (group_by("client"),),
        (group_by("client"), spread()),
        (
            group_by(
                "client", each=lambda group: group.pipe(adaptive_flat_map(work, key="n")), idle=1
            ),
        ),
    ],
    ids=["groups", "turns", "inside"],
)
def test_a_keyed_handler_is_refused_where_events_are_in_groups_already(
    stages: tuple[Any, ...],
) -> None:
    with pytest.raises(BuildError, match="in groups already: leave out key="):
        from_iterable(EVENTS).pipe(*stages, adaptive_flat_map(work, key="client"))


def test_an_event_without_the_key_stops_the_pipeline_as_in_group_by(run: Run) -> None:
    async def story() -> None:
        keyed = adaptive_flat_map(work, key="customer", on_error="skip")
        await from_iterable(EVENTS).pipe(keyed).to_list()

    with pytest.raises(KeyError) as raised:
        run(story())
    assert any("'group_by'" in note for note in raised.value.__notes__)
