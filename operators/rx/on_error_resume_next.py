"""Go on with another stream when the source ends, whether it failed or not.

Items:   those of the source, then those of the other stream; unchanged, in order.
Time:    the other stream begins in the call in which the source ends.
Memory:  none of its own. A plain Observable in place of the other stream has a buffer of 1,024.
Demand:  requests what is requested of it; what the source has not answered goes to the other one.
Ends:    when the other stream ends, with an error or without. A drain begins no other stream. Each
         event is finished with the source that it came from.
Errors:  those of both streams end them and are passed over; a drain passes the source's on. One
         that is passed over is reported and counted in `recoveries`, and does not make the exit
         status 3.

    source                       --1--2--#
    on_error_resume_next(other)  --1--2--a--b--|
    other                                a--b--#
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from reactivex import Observable

from penstock.streams.flowable import Flowable
from penstock.streams.protocol.stage import Subscriber
from penstock.streams.protocol.stage_info import Delivery, StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.rx.combining.inputs import as_stream
from penstock.streams.rx.combining.succession import Succession, succession
from penstock.streams.rx.lift import on_stream

__all__ = ["on_error_resume_next"]

T = TypeVar("T")
S = TypeVar("S")
_Second = Observable[S] | Callable[[BaseException | None], Observable[S] | Future[S]]


def on_error_resume_next(second: _Second[S]) -> Callable[[Flowable[T]], Flowable[T | S]]:
    """Read `second` after the source, even if the source fails.

    `second` is a stream, or a function of the source's error (None without) that returns one.
    """
    choose: Callable[[BaseException | None], Any]
    known: list[Flowable[Any]] = []
    if callable(second):
        choose = second
    else:
        known.append(as_stream("on_error_resume_next", second))
        choose = partial(_always, known[0])

    @on_stream
    def operator(source: Flowable[T]) -> Flowable[T]:
        info = StageInfo("on_error_resume_next", delivery=Delivery(makes=not known))
        return succession(source, partial(_Resuming, choose=choose), info, known)

    return operator


def _always(other: Flowable[Any], error: BaseException | None) -> Flowable[Any]:
    return other


class _Resuming(Succession):
    def __init__(
        self,
        downstream: Subscriber[Any],
        run: Run,
        info: StageInfo,
        source: Flowable[Any],
        choose: Callable[[BaseException | None], Any],
    ) -> None:
        super().__init__(downstream, run, info, source)
        self._choose = choose

    def recovers(self) -> bool:
        return True

    def follow(self, error: BaseException | None) -> None:
        if self.reads > 1:
            self.close(None)
        else:
            self.read(as_stream("on_error_resume_next", self._choose(error)))
