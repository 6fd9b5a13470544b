"""Collect events into lists of a fixed size, or of those that came within a time.

Items:   lists of `size` values, in order; fewer where `wait` seconds have passed since the first
         of a list came, and at the end of the stream. Never an empty one.
Time:    as soon as a list is full, or at the end of its wait: one timer. Without `wait` a list
         waits until it is full, or the stream ends.
Memory:  up to `size` events, in the list that is being filled or waits for demand.
Demand:  requests the missing events of a list, as soon as a list is requested.
Ends:    with the source, after the last list. Cancel returns the events of the list; a list that
         was emitted finishes, fails or returns all of its events together.
Errors:  passes the source's on at once; the events of the list are returned.

    source         --a-b-c-d----------e|
    chunk(3, 6)    ------(a,b,c)--(d)--(e,|)     each pair of brackets is one list
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from penstock.streams.base.errors import BuildError
from penstock.streams.base.recorded import recorded
from penstock.streams.base.validation import given, require_count, require_seconds
from penstock.streams.pipelines.flowable import Flowable
from penstock.streams.protocol.stage_info import Delivery, StageInfo
from penstock.streams.rx.lift import on_stream
from penstock.streams.rx.lists import Lists

__all__ = ["chunk"]

T = TypeVar("T")


@recorded
def chunk(size: int, wait: float | None = None) -> Callable[[Flowable[T]], Flowable[list[T]]]:
    """Lists of `size` events, or of those that came within `wait` seconds of the first.

    For handlers that take lists, with a size that tunes itself, see `batch`. Raises BuildError
    unless `size` is at least 1 and `wait` positive, and between `spread` and a working stage: a
    list would hold the turns of the groups whose events it waits for.

    >>> from penstock import chunk, for_each, from_iterable, run
    >>> report = run(from_iterable(range(5)).pipe(chunk(2)).to(for_each(print)))
    [0, 1]
    [2, 3]
    [4]
    """
    require_count("chunk", size=size)
    require_seconds("chunk", **given(wait=wait))
    detail = f"{size:,}" if wait is None else f"{size:,} or {wait:g} s"

    info = StageInfo(
        "chunk", detail, size, gathers=size, delivery=Delivery(until_more=wait is None and size > 1)
    )

    @on_stream
    def operator(source: Flowable[T]) -> Flowable[list[T]]:
        if source.turns:
            raise BuildError(
                "chunk between spread and a working stage would wait for events of groups whose "
                "turn it holds: use batch(handler), which takes lists, or put chunk behind "
                "adaptive_flat_map"
            )
        return source.then(partial(_Filling, count=size, skip=size, wait=wait), info)

    return operator


class _Filling(Lists):
    def statistics(self) -> dict[str, Any]:
        """The number of events in the list that is being filled."""
        return {"waiting": len(self._held)}
