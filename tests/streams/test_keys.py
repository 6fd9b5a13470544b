"""What an error in a key says: which field is missing, and what to do about it."""

from __future__ import annotations

from typing import Any

import pytest

from operators import distinct_within, group_by, spread
from sinks import collect
from streams import from_iterable, route, run
from streams.errors import describe
from streams.faults import Faults
from streams.keys import KeyFaults, key_function
from streams.run import Run
from streams.stage import StageInfo
from streams.testing import MemorySource, Probe


def notes_for(value: Any, by: Any) -> list[str]:
    """The notes on the error that ends a stream of one event."""
    source, probe = MemorySource([value]), Probe[Any](request=9)
    source.pipe(group_by(by), spread()).connect(probe)
    assert probe.error is not None
    assert source.failed == [value]
    return probe.error.__notes__


@pytest.mark.parametrize(
    ("value", "by", "said"),
    [
        ({"uuid": 7}, "client_id", "the event has no field 'client_id'"),
        ([7], "client_id", "the event is of type list, which has no field 'client_id'"),
        (7, 0, "the event is of type int, which has no item 0"),
        (["one"], 1, "the event has no item 1"),
        (
            {"client_id": [7]},
            "client_id",
            "field 'client_id' of the event, of type list, cannot be a key",
        ),
    ],
)
def test_an_error_in_a_key_says_what_is_wrong_with_the_event_and_what_to_do(
    value: Any, by: Any, said: str
) -> None:
    where, hint = notes_for(value, by)
    assert hint.startswith(said)
    assert 'on_error="skip"' in hint
    assert "route(" in hint
    assert "'group_by', on the event" in where


def test_an_error_in_a_function_of_the_users_gets_no_hint_on_fields() -> None:
    (where,) = notes_for({"uuid": 7}, lambda event: event["client_id"])
    assert "on the event" in where


def test_what_is_skipped_or_routed_says_what_is_wrong_and_nothing_more() -> None:
    letters: list[Any] = []
    for policy in ("skip", route(collect(letters))):
        run, warnings = Run(), []
        run.on_warning = warnings.append
        source = MemorySource[Any]([{"uuid": 7}])
        source.pipe(group_by("client_id", on_error=policy), spread()).attach(
            Probe[Any](request=9), run
        )
        (warning,) = warnings
        assert "the event has no field 'client_id'" in warning
        assert "on_error" not in warning
    assert len(letters) == 1


@pytest.mark.parametrize("time", ["noon", None, True, [7], float("nan"), 10**400, "2026-13-01"])
def test_an_unreadable_time_is_shown_with_its_field_stage_and_event(time: Any) -> None:
    event = {"uuid": 7, "at": time}
    probe = Probe[Any](request=9)
    from_iterable([event]).pipe(distinct_within(5, by="uuid", time="at")).connect(probe)
    where, hint = probe.error.__notes__ if probe.error else ("", "")
    assert where == f"in stage 2 'distinct_within', on the event {describe(event)}"
    kind = type(time).__name__
    assert hint.startswith(f"field 'at' of the event, of type {kind}, cannot be read as a time;")
    assert 'on_error="skip"' in hint


def test_every_field_that_a_stage_reads_is_looked_at() -> None:
    event_without_time = {"uuid": 7}
    source, probe = MemorySource([event_without_time]), Probe[Any](request=1, hold=True)
    source.connect(probe)
    faults: Faults = KeyFaults("stop", Run(), StageInfo("window"), "uuid", "created")
    error = KeyError("created")
    assert not faults.survives(probe.events[0], error)
    assert error.__notes__[1].startswith("the event has no field 'created'")


async def later(value: Any) -> Any:
    return value


def several(value: Any) -> Any:
    yield value


@pytest.mark.parametrize("by", [later, several])
def test_a_function_whose_every_result_is_a_new_object_is_no_key(by: Any) -> None:
    with pytest.raises(TypeError, match="new object for every event"):
        key_function(by)


def test_a_field_of_an_object_that_is_not_a_mapping_is_advised_as_a_function() -> None:
    class Order:
        client = "a"

    with pytest.raises(TypeError) as caught:
        run(from_iterable([Order()]).pipe(group_by("client"), spread()).to(collect([])))
    assert any("give lambda event: event.client" in note for note in caught.value.__notes__)
