"""Ways to read a connectable stream: from its first reader on, or by a function of the user's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from penstock.streams.pipelines.flowable import Connectable, Flowable
from penstock.streams.protocol.stage import Subscriber
from penstock.streams.protocol.stage_info import Delivery, StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.rx.combining.inputs import as_stream

__all__ = ["mapped", "shared"]

T = TypeVar("T")


def shared(connectable: Connectable[T]) -> Flowable[T]:
    """Read the source of `connectable` from its first reader on, and until the last has left."""

    def join(downstream: Subscriber[Any], run: Run) -> None:
        connectable.hub.join(downstream, run, keeps=True)

    return connectable.joined_by(join)


def mapped(
    make: Callable[[], Connectable[Any]],
    mapper: Callable[[Any], Any],
    info: StageInfo,
    source: Flowable[Any],
) -> Flowable[Any]:
    """A stream made by calling `mapper` with a new connectable in each run; all its readers share
    that."""

    def attach(downstream: Subscriber[Any], run: Run) -> None:
        connectable = make()
        # A stream that is read again has another one each time.
        newest = run.root.newest
        connectable.hub.begin_after(newest.get(flowable))
        newest[flowable] = connectable.hub
        run.is_the_same(connectable.info, flowable.info)
        stream = shared(connectable)
        # What it gives to its readers is not what the stage sends on.
        stream.info = stream.info._replace()
        as_stream(info.name, mapper(stream)).attach(downstream, run)

    flowable: Flowable[Any] = Flowable(attach, info._replace(delivery=Delivery(makes=True)), source)
    return flowable
