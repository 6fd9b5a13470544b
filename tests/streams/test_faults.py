from __future__ import annotations

import asyncio
from typing import Any

import pytest

from operators import adaptive_flat_map, group_by, spread
from streams import DeadLetter, Fixed, from_iterable, route
from streams.errors import BufferFull, BuildError
from streams.event import Ending, Event, Nobody
from streams.faults import Backoff, blame, check_policy, retry
from streams.run import Run as StreamRun
from streams.stage import StageInfo
from streams.testing import MemorySink, MemorySource
from streams.testing.plugin import Run


def fails(value: Any) -> Any:
    raise ValueError(value)


# Who is to blame.


def test_the_note_names_the_stage_the_event_and_the_sources_mark() -> None:
    error = ValueError("no")
    info = StageInfo("map", number=3)
    event = Event({"a": 1}, 0.0, Nobody(), "line 7")
    blame(error, info, event)
    blame(error, info, event)
    assert error.__notes__ == ["in stage 3 'map', on the event {'a': 1} (line 7)"]


def test_a_mark_that_is_a_number_is_that_of_a_line() -> None:
    error = ValueError("no")
    blame(error, StageInfo("map", number=3), Event(1, 0.0, Nobody(), 17))
    assert error.__notes__ == ["in stage 3 'map', on the event 1 (line 17)"]


def test_who_may_not_retry_is_not_told_of_keys() -> None:
    with pytest.raises(BuildError, match="only adaptive_flat_map tries again; use"):
        check_policy(retry(2), "write_jsonl")


def test_a_stage_that_has_no_number_yet_is_named_without() -> None:
    assert str(StageInfo("for_each")) == "'for_each'"


def test_a_long_value_is_cut_and_one_that_cannot_be_shown_is_named() -> None:
    class Hidden:
        def __repr__(self) -> str:
            raise RuntimeError

    for value, words in (("x" * 5000, "(5,002 characters)"), (Hidden(), "whose repr raised")):
        error = ValueError("no")
        blame(error, StageInfo("map", number=3), Event(value, 0.0, Nobody()))
        assert words in error.__notes__[0]
        assert len(error.__notes__[0]) < 300


@pytest.mark.parametrize("policy", ["ignore", None, 3, retry(2)])
def test_a_policy_that_a_stage_does_not_have_is_refused(policy: Any) -> None:
    with pytest.raises(BuildError, match="group_by"):
        check_policy(policy, "group_by")


# Letters.


def test_a_letter_tells_all_there_is_to_know(run: Run) -> None:
    async def fails_later(value: int) -> None:
        await asyncio.sleep(2)
        raise ValueError(value)

    dead = MemorySink()
    operator = adaptive_flat_map(fails_later, Fixed(1), on_error=route(dead))
    run(MemorySource([7]).pipe(operator).to(MemorySink()).run())
    (letter,) = dead.values
    assert isinstance(letter, DeadLetter)
    assert (letter.value, letter.stage) == (7, "stage 2 'adaptive_flat_map'")
    assert (letter.attempts, letter.created, letter.failed) == (1, 0, 2)
    assert letter.token is None


def test_a_routed_event_ends_its_turn_at_once(run: Run) -> None:
    async def story() -> None:
        dead, sink = MemorySink(hold=True), MemorySink()
        handler = lambda n: fails(n) if n == 1 else n  # noqa: E731
        flow = MemorySource([1, 2]).pipe(
            group_by(lambda _: 0), spread(), adaptive_flat_map(handler, on_error=route(dead))
        )
        async with flow.to(sink).start():
            await asyncio.sleep(1)
            assert sink.values == [2]
            dead.accept()

    run(story())


def test_letters_that_wait_are_all_sent_before_the_sink_is_closed(run: Run) -> None:
    dead = MemorySink(seconds=1)
    operator = adaptive_flat_map(fails, on_error=route(dead))
    report = run(MemorySource(range(5)).pipe(operator).to(MemorySink()).run())
    assert [letter.value for letter in dead.values] == [0, 1, 2, 3, 4]
    assert report.statistics["failed"] == 5
    assert report.statistics["seconds"] == 5


def test_a_letter_that_is_dropped_counts_as_written(run: Run) -> None:
    async def story() -> None:
        source, dead = MemorySource([1]), MemorySink(hold=True)
        operator = adaptive_flat_map(fails, on_error=route(dead))
        async with source.pipe(operator).to(MemorySink()).start():
            await asyncio.sleep(1)
            assert source.acked == []
            dead.accept()
        assert source.ledger.endings == [(1, Ending.FORGIVEN)]

    run(story())


def test_too_many_waiting_letters_end_the_pipeline(run: Run) -> None:
    source, dead = MemorySource(range(5000)), MemorySink(hold=True)
    operator = adaptive_flat_map(fails, on_error=route(dead))
    with pytest.raises(BufferFull, match="1,024 dead letters"):
        run(source.pipe(operator).to(MemorySink()).run())
    assert source.unsettled == []
    assert source.acked == []


def test_a_sink_is_opened_once_for_all_stages_that_route_to_it(run: Run) -> None:
    dead = MemorySink()
    policy = route(dead)
    flow = from_iterable([{"k": 1}, {}, {"k": 2}]).pipe(
        group_by("k", on_error=policy), spread(), adaptive_flat_map(fails, on_error=policy)
    )
    report = run(flow.to(MemorySink()).run())
    assert sorted(letter.stage for letter in dead.values) == [
        "stage 2 'group_by'",
        "stage 4 'adaptive_flat_map'",
        "stage 4 'adaptive_flat_map'",
    ]
    assert dead.closed == 1
    assert report.statistics["failed"] == 3


def test_only_the_first_few_errors_are_reported_one_by_one(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    operator = adaptive_flat_map(fails, on_error="skip")
    run(MemorySource(range(50)).pipe(operator).to(MemorySink()).run())
    assert len(caplog.records) == 10
    assert caplog.records[0].getMessage() == (
        "ValueError: 0 (in stage 2 'adaptive_flat_map', on the event 0)"
    )


def test_a_run_keeps_its_warnings_where_its_owner_wants_them(run: Run) -> None:
    told: list[str] = []

    async def story() -> None:
        stream_run = StreamRun()
        stream_run.on_warning = told.append
        stream_run.late_error(ValueError("late"))

    run(story())
    assert told == ["after the first error: ValueError: late"]


def test_a_backoff_is_a_value() -> None:
    assert Backoff(1, 2) == Backoff(1, 2)
    assert hash(retry(3)) == hash(retry(3))
