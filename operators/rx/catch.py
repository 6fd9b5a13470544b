"""Go on with another stream when the source fails.

Items:   those of the source, and after its error those of the other stream; unchanged, in order.
Time:    the other stream begins in the call in which the source fails.
Memory:  none of its own. A plain Observable in place of the other stream has a buffer of 1,024.
Demand:  requests what is requested of it; what the source has not answered goes to the other one.
         A function is called after the error, so nothing is requested of what it returns before.
Ends:    with the source, or with the other stream. A drain begins no other stream: the error
         passes. Each event is finished with the source that it came from.
Errors:  the source's is caught; one of the other stream, or of the function, passes through, but
         `on_error_resume_next` passes over one of the other stream too. What failed is counted
         where it failed; events in flight there are returned. What is caught is reported and
         counted in `recoveries`, and does not make the exit status 3.

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

from penstock.streams.base.errors import WrongType, describe
from penstock.streams.base.recorded import recorded
from penstock.streams.pipelines.flowable import Flowable
from penstock.streams.protocol.stage import Subscriber
from penstock.streams.protocol.stage_info import Delivery, StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.rx.combining.inputs import as_stream
from penstock.streams.rx.combining.succession import Succession, succession
from penstock.streams.rx.lift import on_stream
from penstock.streams.stages.stream import Stream

__all__ = ["catch", "on_error_resume_next"]

T = TypeVar("T")
S = TypeVar("S")
_Function = Callable[[Exception, Flowable[T]], Observable[S] | Future[S]]
_Second = Observable[S] | Callable[[BaseException | None], Observable[S] | Future[S]]


# Apart, as only a function says what the source has.
@overload
def catch(handler: Observable[S]) -> Callable[[Flowable[T]], Flowable[T | S]]: ...


@overload
def catch(handler: _Function[T, S]) -> Callable[[Flowable[T]], Flowable[T | S]]: ...


@recorded
def catch(
    handler: Observable[Any] | _Function[Any, Any],
) -> Callable[[Flowable[Any]], Flowable[Any]]:
    """Go on with `handler` when the source fails: a stream, or a function that returns one.

    The function gets the error and the source: `lambda error, source: source` reads it once more.
    It may return an Observable or a future too. Only the source's error is caught, once; to try
    several times, see `retry`.
    """
    choose: Callable[[Exception, Any], Any]
    known: list[Stream[Any]] = []
    if callable(handler) and not isinstance(handler, type):
        choose = handler
    elif hasattr(type(handler), "__await__"):
        # An Observable is awaitable too.
        other = as_stream("catch", handler)
        choose = partial(_always, other)
        known.append(other)
    else:
        raise WrongType(f"catch takes a stream or a function, not {describe(handler, 80)}")

    return _followed("catch", choose, known, always=False)


@recorded
def on_error_resume_next(second: _Second[S]) -> Callable[[Flowable[T]], Flowable[T | S]]:
    """`catch` that reads `second` after the source in any case, and passes over its error too.

        source                       --1--2--#
        on_error_resume_next(other)  --1--2--a--b--|
        other                                a--b--#

    `second` is a stream, or a function of the source's error (None without) that returns one.
    """
    if callable(second):
        make = second
        return _followed("on_error_resume_next", lambda error, _: make(error), [], always=True)
    other = as_stream("on_error_resume_next", second)
    return _followed("on_error_resume_next", partial(_always, other), [other], always=True)


def _followed(
    name: str,
    choose: Callable[[Any, Any], Any],
    known: list[Stream[Any]],
    *,
    always: bool,
) -> Callable[[Flowable[Any]], Flowable[Any]]:
    info = StageInfo(name, delivery=Delivery(makes=not known))

    def operator(source: Flowable[Any]) -> Flowable[Any]:
        return succession(source, partial(_Following, choose=choose, always=always), info, known)

    return on_stream(operator, name)


def _always(other: Stream[Any], error: object, source: object) -> Stream[Any]:
    return other


class _Following(Succession):
    """Reads another stream after the source: after its error, or `always`."""

    def __init__(
        self,
        downstream: Subscriber[Any],
        run: Run,
        info: StageInfo,
        source: Flowable[Any],
        choose: Callable[[Any, Any], Any],
        *,
        always: bool,
    ) -> None:
        super().__init__(downstream, run, info, source)
        self._choose = choose
        self._always = always

    def recovers(self) -> bool:
        return self._always or not self.reads

    def follow(self, error: BaseException | None) -> None:
        if self.reads > 1:
            self.close(None if self._always else error)
        elif self._always or isinstance(error, Exception):
            self.read(as_stream(self.info.name, self._choose(error, self.source)))
        else:
            self.close(error)
