"""The message of an error in a key: which field is missing, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reactivex import operators as ops

from penstock import collect, distinct_within, from_iterable, group_by, route, spread, violations
from penstock.streams.base.errors import describe
from penstock.streams.base.keys import key_function
from penstock.streams.failures.error_policy import ErrorPolicy
from penstock.streams.keyed.key_faults import KeyFaults
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.testing import MemorySource, Probe


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
            {"user": {"id": 7}},
            "user.id",
            "the event has no field 'user.id'; a name has no path in it: give a function, such as "
            "lambda value: value['user']['id'];",
        ),
        ({"user": {"id": 7}}, "client.id", "the event has no field 'client.id'; to go on"),
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
        run.errors.on_warning = lambda text, *_, to=warnings: to.append(text)
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
    assert where == f"in stage 2 'event_time', on the event {describe(event)}"
    kind = type(time).__name__
    assert hint.startswith(f"field 'at' of the event, of type {kind}, cannot be read as a time;")
    assert 'on_error="skip"' in hint


def test_every_field_that_a_stage_reads_is_looked_at() -> None:
    event_without_time = {"uuid": 7}
    source, probe = MemorySource([event_without_time]), Probe[Any](request=1, hold=True)
    source.connect(probe)
    faults: ErrorPolicy = KeyFaults("stop", Run(), StageInfo("window"), "uuid", "created")
    error = KeyError("created")
    assert not faults.survives(probe.events[0], error)
    assert error.__notes__[1].startswith("the event has no field 'created'")


async def later(value: Any) -> Any:
    return value


def several(value: Any) -> Any:
    yield value


@pytest.mark.parametrize("by", [later, several])
def test_a_function_whose_every_result_is_a_new_object_is_not_a_key(by: Any) -> None:
    with pytest.raises(TypeError, match="new object for every event"):
        key_function(by)


class Struct(msgspec.Struct, frozen=True):
    client: str
    at: float = 0.0


class Model(pydantic.BaseModel):
    client: str
    at: float = 0.0


@dataclass
class Data:
    client: str
    at: float = 0.0


class Named(NamedTuple):
    client: str
    at: float = 0.0


def mapping(client: str, at: float = 0.0) -> dict[str, Any]:
    return {"client": client, "at": at}


def frozen(client: str, at: float = 0.0) -> Mapping[str, Any]:
    return MappingProxyType({"client": client, "at": at})


KINDS = st.sampled_from([Struct, lambda client, at: Model(client=client, at=at), Data, Named,
                         mapping, frozen])  # fmt: skip


@given(st.lists(st.tuples(KINDS, st.sampled_from("abc")), max_size=30))
def test_a_name_is_read_of_mappings_by_item_and_of_other_objects_by_attribute(
    kinds: list[tuple[Any, str]],
) -> None:
    values = [kind(client, float(at)) for at, (kind, client) in enumerate(kinds)]
    clients = [client for _, client in kinds]
    first = [clients.index(client) for client in dict.fromkeys(clients)]

    def read(*stages: Any) -> list[Any]:
        probe = Probe[Any](request=99)
        from_iterable(values).pipe(*stages).connect(probe)
        assert probe.completed
        return probe.values

    assert [*map(key_function("client"), values)] == clients
    assert read(distinct_within(9, by="client")) == [values[at] for at in first]
    # By their own time, all but the first of each client within three ticks are duplicates.
    kept = read(distinct_within(3, by="client", time="at"))
    assert kept == read(distinct_within(3, by=key_function("client"), time=key_function("at")))
    groups = read(
        group_by("client", each=lambda group: group.pipe(ops.to_list()), idle=1), spread()
    )
    places = {id(value): at for at, value in enumerate(values)}
    assert sorted([places[id(value)] for value in group] for group in groups) == sorted(
        [at for at, client in enumerate(clients) if client == one] for one in set(clients)
    )
    assert sorted(map(id, read(group_by("client"), spread()))) == sorted(map(id, values))
    violated = read(violations("G !late", by="client", late=lambda value: True, evidence=0))
    assert [one.key for one in violated] == [clients[at] for at in first]


@pytest.mark.parametrize("value", [Struct("a"), Data("a"), Model(client="a"), Named("a")])
def test_an_object_without_the_attribute_gets_the_same_advice(value: Any) -> None:
    where, hint = notes_for(value, "clint")
    said = f"the event is of type {type(value).__name__}, which has no field 'clint'; to go on"
    assert hint.startswith(said)
    assert "'group_by', on the event" in where


@pytest.mark.parametrize("value", ["text", [1], (1, 2), b"1", {1}])
def test_a_method_is_not_a_field(value: Any) -> None:
    name = "count" if hasattr(value, "count") else "add"
    _, hint = notes_for(value, name)
    assert hint.startswith(f"the event is of type {type(value).__name__}, which has no field")


def test_an_item_that_is_named_as_a_method_of_mappings_is_read_beside_attributes() -> None:
    class Basket(NamedTuple):
        items: int

    read = key_function("items")
    assert [*map(read, [{"items": 1}, Basket(2), {"items": 3}])] == [1, 2, 3]


def test_a_mapping_has_no_fields_but_its_items() -> None:
    class Row(dict[str, Any]):
        client = "every"

    _, hint = notes_for(Row(at=1), "client")
    assert hint.startswith("the event has no field 'client'")


def test_an_error_of_a_property_is_its_own() -> None:
    class Order:
        @property
        def client(self) -> str:
            raise ValueError("not paid yet")

    source, probe = MemorySource([Order()]), Probe[Any](request=9)
    source.pipe(group_by("client"), spread()).connect(probe)
    assert isinstance(probe.error, ValueError)
    assert len(probe.error.__notes__) == 1
