"""Streams of iterables and async iterables; both do nothing before the first request."""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable, Iterable
from typing import TypeVar

from penstock.streams.base.recorded import recorded
from penstock.streams.boundary.from_iterable import iterated, iterated_async
from penstock.streams.pipelines.flowable import Flowable
from penstock.streams.stages.source_stage import source

__all__ = ["from_async_iterable", "from_iterable"]

T = TypeVar("T")


@recorded
@source
def from_iterable(iterable: Callable[[], Iterable[T]] | Iterable[T]) -> Flowable[T]:
    """Emit the items of `iterable`, one for each unit of demand.

        iterable        1 2 3
        from_iterable   123|

    Items:   every item, in order; each connection calls `iter` anew. A function that makes the
             iterable is called anew for each connection too: give a generator's function, so
             that the stream can be run many times. An iterator, such as a generator, a `map` or an
             open file, can be read once: a further run goes on behind the items that came before,
             and is a BuildError if none are left, or while another one reads; it is the same
             where the function returns an iterator again.
    Time:    at once, in the call that requests; but every few milliseconds the stream yields to the
             loop first.
    Memory:  only the iterator.
    Demand:  the function and `iter` are called at the first request, `next` once for each unit.
    Ends:    with the iterator: that of a list, tuple or range with the last item, or at once if
             there is none; any other when one more is requested. On cancel and drain a generator is
             closed.
    Errors:  an exception of the iterator arrives as `on_error`; TypeError if it is not iterable.
    """
    return Flowable.like(iterated(iterable))


@recorded
@source
def from_async_iterable(
    factory: Callable[[], AsyncIterable[T]] | AsyncIterable[T],
) -> Flowable[T]:
    """Emit the items of an async iterable, one pulled for each unit of demand.

        async iterable        1--2--3|
        from_async_iterable   1--2--3|

    Items:   every item, in order. A factory is called anew for each connection, so that the
             stream can be run many times; an async iterator, such as a generator, can be read
             once, as by `from_iterable`.
    Time:    as the items come; if they come at once, the stream yields to the loop every few
             milliseconds.
    Memory:  the iterator, and during a pause the item that was being pulled.
    Demand:  the factory is called at the first request; one `__anext__` for each unit, one
             at a time.
    Ends:    with the iterator. On cancel and drain the current pull is cancelled and a generator
             is closed; the run waits for that. An item that came during a pause is emitted when
             the stream resumes or drains; a cancel counts it as returned. Items that the iterable
             has not given out yet stay where they are: if a generator reads your own queue, a
             drain leaves the rest in that queue. `inbox` finishes what was put into it.
    Errors:  an exception of the iterator arrives as `on_error`.
    """
    return Flowable.like(iterated_async(factory))
