"""Share one reading of a stream among all that read it at the same time.

Items:   each reader gets the events that come while it reads; of a connectable stream such as
         `replay` the kept values first.
Time:    as soon as they come, or as they are requested. The source is read from the first reader
         on, when all that are connected together with it are there; when the last has left it is
         cancelled, and the next reader begins it anew. A second pipeline that starts later misses
         what came before: use `publish()`, and `connect()` when all have started. A reader behind
         `delay_subscription` is not a later one: only its requests are late, and events wait.
Memory:  up to `prefetch` events for each reader, and what a connectable stream has for later ones.
Demand:  requests what the fastest reader requests, as long as no more than `prefetch` events wait
         for the slowest: it sets the demand, and a reader that leaves no longer counts. Two readers
         of which one waits for the other (`zip` of a stream and a part of it) may wait for ever.
Ends:    every reader ends with the source, after what waits for it. An event is finished when all
         readers have finished it, and fails when one fails it; it counts once in the pipeline. A
         value that is kept for later readers is finished as if it were not kept, and owes nothing
         when one gets it. A reader that is cancelled, or leaves early, returns what it has not
         finished, whatever the others do with it: a source that gives events again gives these to
         all. A drain stops the source. When the pipeline that reads the source ends first, the
         source is read on for the others.
Errors:  the source's passes on to every reader, after what waits for it.

    source    --1--2--3--4--|
    a reader  --1--2--3--4--|
    a later   --------3--4--|
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from penstock.streams.base.errors import BuildError
from penstock.streams.base.recorded import recorded
from penstock.streams.base.validation import require_count
from penstock.streams.pipelines.connecting import shared
from penstock.streams.pipelines.flowable import Connectable, Flowable
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.rx.combining.several import PREFETCH
from penstock.streams.rx.lift import on_stream

__all__ = ["ref_count", "share"]

T = TypeVar("T")


@recorded
def share(*, prefetch: int = PREFETCH) -> Callable[[Flowable[T]], Flowable[T]]:
    """The same stream, of which all readers get the same events; up to `prefetch` wait for each.

    Raises BuildError for a `prefetch` below 1, and between `spread` and a working stage.
    """
    require_count("share", prefetch=prefetch)
    info = StageInfo("share", "", prefetch)

    @on_stream
    def operator(source: Flowable[T]) -> Flowable[T]:
        return shared(Connectable(source, info, prefetch))

    return operator


@recorded
def ref_count() -> Callable[[Flowable[T]], Flowable[T]]:
    """`share` of a connectable stream: connected with its first reader, cancelled with the last.

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
