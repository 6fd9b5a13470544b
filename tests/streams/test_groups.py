"""Groups must be read: by spread(), by `async for`, by flat_map, or by a handler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from reactivex import operators as ops

from operators import adaptive_flat_map, distinct_within, group_by, rate_limit, spread
from sinks import collect
from streams import Flowable, from_iterable, lift
from streams.errors import BuildError
from streams.testing import Probe

GROUPED = from_iterable(["a1", "b1", "a2"]).pipe(group_by(0))


def same(value: Any) -> Any:
    return value


def test_groups_cannot_end_in_a_sink_however_they_get_there() -> None:
    groups: Any = GROUPED.pipe(ops.map(same))
    with pytest.raises(BuildError, match=r"insert spread\(\)"):
        groups.to(collect([]))


def test_a_stream_has_groups_from_group_by_to_what_reads_them() -> None:
    assert GROUPED.groups
    assert GROUPED.pipe(ops.map(same)).groups
    assert not GROUPED.pipe(spread()).groups
    assert not GROUPED.pipe(ops.map(same), adaptive_flat_map(str)).groups
    assert GROUPED.pipe(spread(), adaptive_flat_map(str), group_by(0)).groups


OPERATORS: dict[str, Callable[[Any], Any]] = {
    "distinct_within": distinct_within(10, by="uuid"),
    "rate_limit": rate_limit(5),
    "group_by": group_by("client_id"),
}


@pytest.mark.parametrize("between", [[], [ops.map(same)], [lift(same)]], ids=len)
@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_on_single_events_is_refused_where_groups_come(
    name: str, between: list[Any]
) -> None:
    with pytest.raises(BuildError) as raised:
        GROUPED.pipe(*between, OPERATORS[name])
    number = 3 + len(between)
    assert f"stage {number} '{name}'" in str(raised.value)
    assert "stage 2 'group_by'" in str(raised.value)
    assert "each=lambda group: group.pipe(...)" in str(raised.value)
    assert "spread()" in str(raised.value)


@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_on_single_events_is_welcome_before_group_by_in_it_and_after_spread(
    name: str,
) -> None:
    source, operator = from_iterable(["a1"]), OPERATORS[name]
    source.pipe(operator, spread() if name == "group_by" else same, group_by(0))
    source.pipe(group_by(0), spread(), operator)
    source.pipe(group_by(0, each=lambda group: group.pipe(operator, spread()), idle=9), spread())


def test_groups_read_by_flat_map_are_single_events_again() -> None:
    probe = Probe[str](request=9)
    events: Flowable[str] = GROUPED.pipe(ops.flat_map(same))
    events.pipe(distinct_within(10, by=0)).connect(probe)
    assert probe.values == ["a1", "b1"]
    events.to(collect([]))
