"""Read the source again from its start when it has ended.

Items:   those of each reading of the source, unchanged, in order.
Time:    the next reading begins in the call in which the source ends; after a reading without
         events perhaps in the next loop iteration, so that an empty source does not block the loop.
Memory:  none of its own.
Demand:  requests what is requested of it; what a reading has not answered goes to the next one.
Ends:    with the last reading, or with none if there is no limit. A drain begins no other reading.
         Each event is finished with the reading that it came from.
Errors:  the source's passes through; this stage raises none of its own.

    source     --1--2|
    repeat(2)  --1--2--1--2|
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from penstock.streams.base.recorded import recorded
from penstock.streams.pipelines.flowable import Flowable
from penstock.streams.protocol.stage import Subscriber
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.rx.combining.succession import Succession, again

__all__ = ["repeat"]

T = TypeVar("T")


@recorded
def repeat(repeat_count: int | None = None) -> Callable[[Flowable[T]], Flowable[T]]:
    """Read the source `repeat_count` times in total; None: again and again.

    Raises BuildError for a `repeat_count` below 1, and for a source that cannot begin again, such
    as standard input or a named pipe; one that is made later ends the stream with this error.
    """
    return again("repeat", partial(_Repeating, times=repeat_count), repeat_count)


class _Repeating(Succession):
    def __init__(
        self,
        downstream: Subscriber[Any],
        run: Run,
        info: StageInfo,
        source: Flowable[Any],
        times: int | None,
    ) -> None:
        super().__init__(downstream, run, info, source)
        self._times = times

    def follow(self, error: BaseException | None) -> None:
        if error is not None or self.reads == self._times:
            self.close(error)
        else:
            self.check_again()
            self.read(self.source)
