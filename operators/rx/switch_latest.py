"""Read the newest of the streams that are a stream's values.

Items:   the events of each stream until the next stream comes.
Time:    as soon as they come, or as they are requested. The next stream is taken as soon as it
         comes, as long as events are requested.
Memory:  one event of the open stream, and one of the source. A plain Observable has a buffer of
         1,024 besides.
Demand:  one event at a time from the open stream, and the next one of the source while there is
         demand that the open stream does not meet. A slow reader holds back both: to go on with the
         newest value, wrap the source with `latest()`.
Ends:    when the source and its last stream have ended. When the next stream comes, the one before
         is cancelled, and its events that have not been passed on are returned. An event of the
         source is finished when its stream has ended or was cancelled, and all that came of it is
         finished; if nothing came of it, it is dropped as "switch_latest". Cancel returns both. A
         drain stops the source, and reads the open stream to its end.
Errors:  the first one, of the source or of the open stream, passes on at once; that of the open
         stream fails its event of the source.

    source           --a-----b------|
    switch_latest()  ----1-2----1-2---|
    a                ----1-2-X
    b                        ---1-2---|      X: cancelled
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from reactivex import operators as stock

from penstock.streams.flowable import Flowable
from penstock.streams.protocol.stage import StageInfo
from penstock.streams.rx.combining.switching import Switching
from penstock.streams.rx.lift import WithStock

__all__ = ["switch_latest"]


def switch_latest() -> Callable[[Flowable[Any]], Flowable[Any]]:
    """The events of the newest of the streams that the stream has as values.

    The values may be streams, Observables or futures.
    """
    info = StageInfo("switch_latest", "", 2, opens=True, makes=True)
    return WithStock(lambda source: source.then(Switching, info), stock.switch_latest())
