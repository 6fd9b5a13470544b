"""Connect a connectable stream with its first reader, and disconnect it with the last.

Items:   each reader gets the events that come while it reads; of `replay` the kept values first.
Time:    the source is read from the first reader on; when the last has left it is cancelled, and
         the next reader begins it anew.
Memory:  what the connectable stream keeps: up to `prefetch` events for each reader, and the values
         that `replay`, or a subject, has for later readers.
Demand:  requests what the fastest reader requests, as long as no more than `prefetch` events wait
         for the slowest: it sets the demand, and a reader that leaves no longer counts.
Ends:    every reader ends with the source, after what waits for it. An event is finished when all
         readers have finished it, and fails when one fails it. A value that is kept for later
         readers is finished as if it were not kept, and owes nothing when one gets it. A reader
         that is cancelled, or leaves early, returns what it has not finished, whatever the others
         do with it: a source that gives events again gives these to all.
Errors:  the source's passes on to every reader, after what waits for it.

    source    --1--2--3--4--|
    a reader  --1--2--3--4--|
    a later   --------3--4--|
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from penstock.streams.errors import BuildError
from penstock.streams.flowable import Flowable
from penstock.streams.rx.combining.sharing import Connectable, shared
from penstock.streams.rx.lift import on_stream

__all__ = ["ref_count"]

T = TypeVar("T")


def ref_count() -> Callable[[Flowable[T]], Flowable[T]]:
    """The events of a connectable stream, for as long as there are readers.

    Raises BuildError after anything but `publish`, `replay`, `publish_value` or `multicast`.
    """

    @on_stream
    def operator(source: Flowable[T]) -> Flowable[T]:
        if not isinstance(source, Connectable):
            raise BuildError(
                f"ref_count() follows publish(), replay() or multicast(), not {source.info.name}: "
                "use share()"
            )
        return shared(source)

    return operator
