"""Read other streams after the source, one after another.

Items:   those of the source, then those of each other stream; unchanged, in order.
Time:    a stream begins when the one before has ended, in the same call, unless that began in the
         same loop iteration.
Memory:  none of its own. Each plain Observable among the others has a buffer of 1,024.
Demand:  requests what is requested of it; what a stream has not answered goes to the next one.
         Nothing is requested of a stream before the one before it has ended.
Ends:    with the last stream. A drain begins no other stream. Each event is finished with the
         source that it came from.
Errors:  the first error of a stream passes through; the streams after it are not read.

    source           --1--2|
    other                   --a--b|
    concat(other)    --1--2--a--b|
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

from reactivex import Observable
from reactivex import operators as stock

from penstock.streams.base.recorded import recorded
from penstock.streams.pipelines.flowable import Flowable
from penstock.streams.protocol.stage import Subscriber
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.rx.combining.inputs import as_stream
from penstock.streams.rx.combining.succession import Succession, succession
from penstock.streams.rx.lift import WithStock
from penstock.streams.stages.stream import Stream

__all__ = ["concat"]

T = TypeVar("T")
S = TypeVar("S")


@recorded
def concat(*sources: Observable[S]) -> Callable[[Flowable[T]], Flowable[T | S]]:
    """Read `sources`, streams or plain Observables, after the stream, one after another."""
    others = [as_stream("concat", source) for source in sources]

    def operator(source: Flowable[T]) -> Flowable[T]:
        make = partial(_Concatenating, others=others)
        return succession(source, make, StageInfo("concat", f"{1 + len(others):,} streams"), others)

    return WithStock(operator, stock.concat(*sources))


class _Concatenating(Succession):
    def __init__(
        self,
        downstream: Subscriber[Any],
        run: Run,
        info: StageInfo,
        source: Flowable[Any],
        others: Sequence[Stream[Any]],
    ) -> None:
        super().__init__(downstream, run, info, source)
        self._others: Iterator[Stream[Any]] = iter(others)

    def follow(self, error: BaseException | None) -> None:
        other = next(self._others, None) if error is None else None
        if other is None:
            self.close(error)
        else:
            self.read(other)
