"""With demand enough, the operators over several streams do to the tick what reactivex's do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reactivex import operators as ops

from tests.helpers.like_stock import assert_like_stock, messages

SEVERAL: list[Callable[..., Any]] = [ops.merge, ops.zip, ops.combine_latest, ops.with_latest_from]


@pytest.mark.parametrize("operator", SEVERAL)
@given(source=messages(), other=messages(later=0.25), third=messages(later=0.5))
def test_several_streams(operator: Callable[..., Any], source: Any, other: Any, third: Any) -> None:
    assert_like_stock(lambda one, two: operator(one(), two()), source, other, third)


@given(messages(), messages(later=0.25))
def test_the_first_of_two(source: Any, other: Any) -> None:
    assert_like_stock(lambda make: ops.amb(make()), source, other)


@pytest.mark.parametrize("operator", [ops.flat_map, ops.switch_map])
@given(source=messages(), inner=messages(later=0.25))
def test_streams_inside(operator: Callable[..., Any], source: Any, inner: Any) -> None:
    assert_like_stock(lambda make: operator(lambda _: make()), source, inner)


@given(messages(), st.integers(1, 3))
def test_a_shared_stream_paired_with_itself(source: Any, skipped: int) -> None:
    assert_like_stock(
        lambda: ops.publish(lambda one: one.pipe(ops.zip(one.pipe(ops.skip(skipped))))), source
    )
