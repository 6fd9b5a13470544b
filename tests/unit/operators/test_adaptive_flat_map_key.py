"""`adaptive_flat_map(key=)` is `group_by`, `spread` and itself."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock import (
    Flowable,
    adaptive_flat_map,
    from_iterable,
    group_by,
    retry,
    route,
    spread,
    write_kafka,
)
from penstock.streams.base.errors import BuildError, WrongType
from penstock.streams.testing import MemorySink, MemorySource
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


WITHOUT_KEY: list[dict[str, int]] = [{"client": 1}, {}, {"client": 2}]


def counted(on_error: Any, run: Run) -> tuple[Any, MemorySource[Any]]:
    source = MemorySource(WITHOUT_KEY)
    keyed = adaptive_flat_map(str, key="client", on_error=on_error)
    return run(source.pipe(keyed).to(MemorySink()).run()), source


def test_an_event_without_the_key_stops_the_pipeline_as_in_group_by(run: Run) -> None:
    with pytest.raises(KeyError) as raised:
        counted("stop", run)
    assert any("'group_by'" in note for note in raised.value.__notes__)
    assert any('give on_error="skip"' in note for note in raised.value.__notes__)


@pytest.mark.parametrize("on_error", ["skip", retry(2, then="skip")], ids=["skip", "retry"])
def test_an_event_without_the_key_is_skipped_as_one_that_the_handler_refuses(
    run: Run, on_error: Any
) -> None:
    report, source = counted(on_error, run)
    assert [stage.get("skipped") for stage in report.statistics["stages"]][1] == 1
    assert source.acked == WITHOUT_KEY


@pytest.mark.parametrize("on_error", ["revert", retry(2, then="revert")], ids=["revert", "retry"])
def test_an_event_without_the_key_is_returned_to_the_source_if_errors_are_reverted(
    run: Run, on_error: Any
) -> None:
    _, source = counted(on_error, run)
    assert (source.acked, source.failed) == ([{"client": 1}, {"client": 2}], [{}])


def test_dead_letters_of_the_key_and_of_the_handler_go_to_one_sink(run: Run) -> None:
    def work(event: dict[str, int]) -> int:
        return 1 // (event["client"] - 1)

    letters = MemorySink()
    keyed = adaptive_flat_map(work, key="client", on_error=retry(1, then=route(letters)))
    report = run(MemorySource(WITHOUT_KEY).pipe(keyed).to(MemorySink()).run())
    assert report.outcome == "completed"
    told = {type(letter.error).__name__: letter.value for letter in letters.values}
    assert told == {"ZeroDivisionError": {"client": 1}, "KeyError": {}}
    assert letters.closed == 1


async def later(event: object) -> object:
    return event


@pytest.mark.parametrize("key", [3.5, True, later])
def test_a_key_that_is_none_is_named_as_it_was_given(key: Any) -> None:
    with pytest.raises(WrongType, match=r"^key="):
        adaptive_flat_map(str, key=key)


def test_the_key_of_a_topic_that_is_none_is_named_as_it_was_given() -> None:
    with pytest.raises(WrongType, match=r"^key="):
        write_kafka("topic", key=3.5)  # type: ignore[arg-type]
