"""Go on with another stream when the source fails.

Items:   those of the source, and after its error those of the other stream; unchanged, in order.
Time:    the other stream begins in the call in which the source fails.
Memory:  none of its own. A plain Observable in place of the other stream has a buffer of 1,024.
Demand:  requests what is requested of it; what the source has not answered goes to the other one.
         A function is called after the error, so nothing is requested of what it returns before.
Ends:    with the source, or with the other stream. A drain begins no other stream: the error
         passes. Each event is finished with the source that it came from.
Errors:  the source's is caught; one of the other stream, or of the function, passes through.
         What failed is counted where it failed; events in flight there are returned. What is caught
         is reported and counted in `recoveries`, and does not make the exit status 3.

    source        --1--2--#
    catch(other)  --1--2--a--b--|
    other                 a--b--|
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar, overload

from reactivex import Observable

from penstock.streams.errors import WrongType, describe
from penstock.streams.flowable import Flowable
from penstock.streams.protocol.stage import Subscriber
from penstock.streams.protocol.stage_info import Delivery, StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.rx.combining.inputs import as_stream
from penstock.streams.rx.combining.succession import Succession, succession
from penstock.streams.rx.lift import on_stream

__all__ = ["catch"]

T = TypeVar("T")
S = TypeVar("S")
_Function = Callable[[Exception, Flowable[T]], Observable[S] | Future[S]]


# Apart, as only a function says what the source has.
@overload
def catch(handler: Observable[S]) -> Callable[[Flowable[T]], Flowable[T | S]]: ...


@overload
def catch(handler: _Function[T, S]) -> Callable[[Flowable[T]], Flowable[T | S]]: ...


def catch(
    handler: Observable[Any] | _Function[Any, Any],
) -> Callable[[Flowable[Any]], Flowable[Any]]:
    """Go on with `handler` when the source fails: a stream, or a function that returns one.

    The function gets the error and the source: `lambda error, source: source` reads it once more.
    It may return an Observable or a future too. Only the source's error is caught, once; to try
    several times, see `retry`.
    """
    choose: Callable[[Exception, Flowable[Any]], Any]
    known: list[Flowable[Any]] = []
    if callable(handler) and not isinstance(handler, type):
        choose = handler
    elif hasattr(type(handler), "__await__"):
        # An Observable is awaitable too.
        other = as_stream("catch", handler)
        choose = partial(_always, other)
        known.append(other)
    else:
        raise WrongType(f"catch takes a stream or a function, not {describe(handler, 80)}")

    @on_stream
    def operator(source: Flowable[T]) -> Flowable[T]:
        info = StageInfo("catch", delivery=Delivery(makes=not known))
        return succession(source, partial(_Catching, choose=choose), info, known)

    return operator


def _always(other: Flowable[Any], error: Exception, source: Flowable[Any]) -> Flowable[Any]:
    return other


class _Catching(Succession):
    def __init__(
        self,
        downstream: Subscriber[Any],
        run: Run,
        info: StageInfo,
        source: Flowable[Any],
        choose: Callable[[Exception, Flowable[Any]], Any],
    ) -> None:
        super().__init__(downstream, run, info, source)
        self._choose = choose

    def recovers(self) -> bool:
        return not self.reads

    def follow(self, error: BaseException | None) -> None:
        if self.reads > 1 or not isinstance(error, Exception):
            self.close(error)
        else:
            self.read(as_stream("catch", self._choose(error, self.source)))
