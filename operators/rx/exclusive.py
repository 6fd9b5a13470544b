"""Read one of a stream's streams to its end, and drop those that come meanwhile.

Items:   the events of the streams that are read.
Time:    as soon as they come, or as they are requested.
Memory:  one event of the open stream, and one of the source. A plain Observable has a buffer of
         1,024 besides.
Demand:  one event at a time from the open stream, and the next one of the source while there is
         demand that the open stream does not meet. A slow reader holds back both: to go on with the
         newest value, wrap the source with `latest()`.
Ends:    when the source and the open stream have ended. An event of the source is finished when its
         stream has ended and all its events are; one whose stream is not read, or is empty, is
         dropped as "exclusive". Cancel returns what is open. A drain stops the source, and reads
         the open stream to its end.
Errors:  the first one, of the source or of the open stream, passes on at once; that of the open
         stream fails its event of the source.

    source       --a-----b------c------|
    exclusive()  ----1-2----3-----1-2----|
    a            ----1-2----3|
    c                           --1-2----|
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from reactivex import operators as stock

from penstock.streams.flowable import Flowable
from penstock.streams.protocol.stage import StageInfo
from penstock.streams.rx.combining.switching import Exclusive
from penstock.streams.rx.lift import WithStock

__all__ = ["exclusive"]


def exclusive() -> Callable[[Flowable[Any]], Flowable[Any]]:
    """The events of those streams that come while no other is read.

    The values may be streams, Observables or futures.
    """
    info = StageInfo("exclusive", "", 2, opens=True, makes=True)
    return WithStock(lambda source: source.then(Exclusive, info), stock.exclusive())
