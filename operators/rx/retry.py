"""Read the source again from its start when it fails.

Items:   those of each reading of the source, unchanged, in order: what came before the error comes
         again, as far as the source gives it again.
Time:    the next reading begins in the call in which the source fails, or after the wait of
         `backoff`, which is one timer.
Memory:  none of its own.
Demand:  requests what is requested of it; what a reading has not answered goes to the next one.
Ends:    with a reading that ends without an error. A drain begins no other reading: the error
         passes. Each event is finished with the reading that it came from.
Errors:  the error of the last reading passes through. What failed is counted where it failed;
         events in flight there are returned. A failure that is followed by another reading is
         reported and counted in `recoveries`, and does not make the exit status 3.

    source    --1--#
    retry(2)  --1----1--#
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from penstock.streams.base.recorded import recorded
from penstock.streams.failures.backoff import Backoff, check_backoff
from penstock.streams.pipelines.flowable import Flowable
from penstock.streams.protocol.event import Event
from penstock.streams.protocol.stage import State, Subscriber
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.runtime.timer import Timer
from penstock.streams.rx.combining.succession import Succession, again

__all__ = ["retry"]

T = TypeVar("T")


@recorded
def retry(
    retry_count: int | None = None, backoff: Backoff | None = None
) -> Callable[[Flowable[T]], Flowable[T]]:
    """Read the source up to `retry_count` times in total (None: until it ends without an error).

    `backoff` is the wait before the next reading: it grows with each reading in a row that gave no
    event. To retry the handler of a single event, see the policy `penstock.retry`.

    Raises BuildError for a `retry_count` below 1, a wrong `backoff`, and for a source that cannot
    begin again, such as standard input or a named pipe; one that is made later ends the stream with
    this error.
    """
    check_backoff("retry", backoff)
    return again("retry", partial(_Retrying, times=retry_count, backoff=backoff), retry_count)


class _Retrying(Succession):
    def __init__(
        self,
        downstream: Subscriber[Any],
        run: Run,
        info: StageInfo,
        source: Flowable[Any],
        times: int | None,
        backoff: Backoff | None,
    ) -> None:
        super().__init__(downstream, run, info, source)
        self._left = times
        self._backoff = backoff
        self._rng = random.Random(None if backoff is None else backoff.seed)
        # Readings in a row that gave no event.
        self._vain = 0
        self._timer = Timer(run, info, self._again)
        self._error: BaseException | None = None

    def recovers(self) -> bool:
        if self._left is not None:
            self._left -= 1
        return self._left != 0

    def passing(self, events: list[Event[Any]]) -> None:
        self._vain = 0

    def follow(self, error: BaseException | None) -> None:
        if error is None or self._left == 0:
            self.close(error)
            return
        self.check_again(error)
        if self._backoff is None:
            self.read(self.source)
        else:
            self._vain += 1
            seconds = self._backoff.delay(self._vain, self._rng)
            self._error = error
            self._timer.set(seconds)

    def _again(self) -> None:
        if self.run.drains:
            self.close(self._error)
        else:
            self.read(self.source)

    def _close(self, state: State) -> None:
        self._timer.cancel()
        super()._close(state)
