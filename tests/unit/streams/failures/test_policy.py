from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from penstock import adaptive_flat_map, route
from penstock.streams.base.errors import BadArgument, BuildError
from penstock.streams.failures.backoff import Backoff
from penstock.streams.failures.policy import check_policy, retry
from penstock.streams.protocol.acknowledgement import Nobody
from penstock.streams.protocol.blame import blame
from penstock.streams.protocol.event import Event
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run as StreamRun
from penstock.streams.testing import MemorySink, MemorySource
from penstock.streams.testing.plugin import Run


def fails(value: Any) -> Any:
    raise ValueError(value)


# Blame.


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


def test_a_stage_that_may_not_retry_does_not_mention_keys() -> None:
    with pytest.raises(BuildError, match="only adaptive_flat_map and batch can retry; use"):
        check_policy(retry(2), "write_jsonl")


def test_what_can_be_opened_and_is_not_a_sink_is_refused_by_route() -> None:
    with pytest.raises(BuildError, match=r"route\(.*dead.jsonl.*\): give a sink, such as route"):
        route(Path("dead.jsonl"))  # type: ignore[arg-type]


@pytest.mark.parametrize("on", [(), BaseException, "ValueError", (ValueError, 3), [ValueError]])
def test_what_is_tried_again_are_types_of_exceptions(on: Any) -> None:
    with pytest.raises(BuildError, match=r"retry\(on=.*give the errors that another attempt may"):
        retry(2, on=on)


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


# Reports.


def test_only_the_first_few_errors_are_reported_one_by_one(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    operator = adaptive_flat_map(fails, on_error="skip")
    run(MemorySource(range(50)).pipe(operator).to(MemorySink()).run())
    assert len(caplog.records) == 11
    assert caplog.records[-1].getMessage().startswith("more events have failed")
    assert caplog.records[0].getMessage() == (
        "ValueError: 0 (in stage 2 'adaptive_flat_map', on the event 0)"
    )


def test_a_run_keeps_its_warnings_where_its_owner_wants_them(run: Run) -> None:
    told: list[str] = []

    async def story() -> None:
        stream_run = StreamRun()
        stream_run.errors.on_warning = lambda text, *_: told.append(text)
        stream_run.late_error(ValueError("late"))

    run(story())
    assert told == ["after the first error: ValueError: late"]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"first": 60}, r"Backoff\(first=60, cap=30\.0.*a cap of at least first is needed"),
        ({"first": -1}, "seconds of at least 0 are needed as first and cap"),
        ({"first": "1"}, "seconds of at least 0 are needed as first and cap"),
        ({"first": math.nan}, "seconds of at least 0 are needed as first and cap"),
        ({"cap": None}, "seconds of at least 0 are needed as first and cap"),
        ({"jitter": 2}, "a jitter from 0 to 1 is needed"),
        ({"jitter": "much"}, "a jitter from 0 to 1 is needed"),
    ],
)
def test_a_backoff_out_of_range_is_refused_as_a_pipeline_that_cannot_be_built(
    options: dict[str, Any], told: str
) -> None:
    with pytest.raises(BadArgument, match=told):
        Backoff(**options)


def test_a_backoff_is_a_value() -> None:
    assert Backoff(1, 2) == Backoff(1, 2)
    assert hash(retry(3)) == hash(retry(3))
