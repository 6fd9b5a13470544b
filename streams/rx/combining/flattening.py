"""Builds operators that flatten streams of streams, such as `merge_all` and `concat_map`."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar, cast

from reactivex import Observable

from penstock.streams.base.validation import require_count
from penstock.streams.execution.handler import called_name
from penstock.streams.protocol.stage_info import Delivery, Placement, StageInfo
from penstock.streams.rx.combining.flat_map import FlatMap
from penstock.streams.rx.combining.inputs import check_not_async
from penstock.streams.stages.stream import Stream

__all__ = ["AHEAD", "Inner", "flattened"]

S = TypeVar("S", bound=Stream[Any])

B = TypeVar("B")

Inner = Observable[B] | Future[B]
"""What a function may return for a value, whose events then take its place."""


AHEAD = 2
"""How many events wait, at most, until one of the streams that are open has ended."""


def flattened(
    name: str,
    source: S,
    function: Callable[[Any], Any] | None,
    max_concurrent: int,
    ahead: int = AHEAD,
) -> S:
    """`source` with the items of `function(value)`, or of each value, in place of its own."""
    require_count(name, max_concurrent=max_concurrent)
    check_not_async(name, function)

    def items(value: Any, _: int) -> Any:
        return value if function is None else function(value)

    make = partial(
        FlatMap,
        function=items,
        max_concurrent=max_concurrent,
        ahead=ahead,
        calls=called_name(function),
    )
    # Those that are open, and an event of each of their streams, and those that wait.
    most = 2 * max_concurrent + ahead
    detail = f"{max_concurrent:,} at once"
    info = StageInfo(
        name,
        detail,
        most,
        delivery=Delivery(makes=True),
        placement=Placement(opens=function is None),
    )
    return cast("S", source.then(make, info))
