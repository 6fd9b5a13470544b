from __future__ import annotations

from typing import Any

import pytest
from reactivex import operators as ops

from penstock import (
    adaptive_flat_map,
    collect,
    distinct_within,
    from_iterable,
    group_by,
    lift,
    rate_limit,
    spread,
)
from penstock.streams.base.errors import BuildError
from penstock.streams.testing import Probe, run_virtual


def nothing_to_do(value: Any) -> Any:
    return value


# Refusals.


@pytest.mark.parametrize(
    "read",
    [
        lambda groups: groups.pipe(ops.map(nothing_to_do)),
        lambda groups: groups.pipe(ops.flat_map(nothing_to_do)),
        lambda groups: groups.pipe(lift(nothing_to_do)),
        lambda groups: groups.map(nothing_to_do),
        lambda groups: groups.pipe(distinct_within(10, by=0)),
        lambda groups: groups.pipe(rate_limit(5)),
        lambda groups: groups.pipe(group_by(1)),
    ],
)
def test_an_operator_on_single_events_is_refused_after_group_by(read: Any) -> None:
    with pytest.raises(BuildError) as raised:
        read(from_iterable("ab").pipe(group_by(0)))
    message = str(raised.value)
    assert message.startswith("stage 3 '")
    assert "stage 2 'group_by'" in message
    assert "put spread() between" in message
    assert "each=lambda group: group.pipe(...)" in message


def test_reading_groups_without_spread_says_to_insert_it() -> None:
    groups: Any = from_iterable("ab").pipe(group_by(0))
    advice = r"stage 2 'group_by' makes groups, which only spread\(\) reads: insert spread\(\)"

    async def iterate() -> None:
        async for _ in groups:
            pass

    with pytest.raises(BuildError, match=advice):
        run_virtual(iterate())
    errors: list[Exception] = []
    groups.subscribe(on_error=errors.append)
    probe = Probe[Any](request=9)
    groups.connect(probe)
    for error in (*errors, probe.error):
        assert isinstance(error, BuildError)
        assert "insert spread()" in str(error)
    assert len(errors) == 1


def test_an_operator_on_single_events_is_welcome_before_group_by_in_it_and_after_spread() -> None:
    operator = distinct_within(10, by="uuid")
    source = from_iterable(["a1"])
    source.pipe(operator, group_by(0), spread())
    source.pipe(group_by(0), spread(), operator)
    source.pipe(group_by(0, each=lambda group: group.pipe(operator), idle=9), spread())


def test_group_by_directly_after_group_by_is_refused() -> None:
    with pytest.raises(BuildError, match=r"put spread\(\) between"):
        from_iterable("ab").pipe(group_by(0), group_by(0))


def test_work_straight_after_group_by_is_refused_and_spread_is_named() -> None:
    with pytest.raises(BuildError, match=r"insert spread\(\)"):
        from_iterable("ab").pipe(group_by(0), adaptive_flat_map(nothing_to_do))


def test_a_sink_straight_after_group_by_is_refused() -> None:
    with pytest.raises(BuildError, match=r"insert spread\(\)"):
        from_iterable("ab").pipe(group_by(0)).to(collect([]))


@pytest.mark.parametrize(
    "operator", [ops.buffer_with_count(2), ops.delay(1), ops.reduce(max), ops.debounce(1)]
)
def test_an_operator_that_holds_between_spread_and_the_work_is_refused(operator: Any) -> None:
    with pytest.raises(BuildError, match="each=lambda group"):
        from_iterable("ab").pipe(group_by(0), spread(), operator)


def test_an_operator_that_holds_is_allowed_after_the_work() -> None:
    from_iterable("ab").pipe(
        group_by(0), spread(), adaptive_flat_map(nothing_to_do), ops.buffer_with_count(2)
    )


@pytest.mark.parametrize(
    "options",
    [
        {"buffer": 0},
        {"idle": 5},
        {"max_groups": 5},
        {"each": nothing_to_do},
        {"each": nothing_to_do, "idle": 0},
        {"each": nothing_to_do, "idle": 1, "max_groups": 0},
        {"on_error": "retry"},
    ],
    ids=", ".join,
)
def test_nonsense_is_refused_when_the_operator_is_built(options: dict[str, Any]) -> None:
    with pytest.raises(BuildError, match="group_by"):
        group_by(0, **options)


@pytest.mark.parametrize("by", [True, None, 1.5])
def test_a_key_is_a_name_an_index_or_a_function(by: Any) -> None:
    with pytest.raises(TypeError, match="is not a valid key"):
        group_by(by)
