"""Puts the `pipe` of a test of RxPY on a stream with demand, by public names only."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from reactivex import Observable

from penstock import Flowable, buffer
from penstock.streams.testing import on_scheduler

# The tests push as they like, and say nothing about demand: no value may overflow.
_ROOM = 10**9

# "one": a value is requested when the one before has been received; otherwise without a bound.
_REQUEST = 1 if os.environ.get("RXPY_DEMAND") == "one" else None


def through(source: Observable[Any], operators: Sequence[Callable[[Any], Any]]) -> Any:
    """What `source.pipe(*operators)` is, read through a stream with demand."""
    return _plain(Flowable.of(source, on_overflow=buffer(_ROOM)).pipe(*operators))


def _plain(result: Any) -> Any:
    if isinstance(result, list):
        return [_plain(stream) for stream in result]
    if isinstance(result, Flowable):
        return on_scheduler(result, request=_REQUEST)
    return result
