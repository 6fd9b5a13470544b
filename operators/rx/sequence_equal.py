"""Whether the stream and another one have the same values in the same order.

Items:   one: True, or False.
Time:    False at the first pair that differs, or when one stream has a value more than the other;
         True when both have ended.
Memory:  one event of each stream. A plain Observable in place of the other has a buffer of 1,024.
Demand:  requests one event of each stream at a time, once the answer is requested.
Ends:    after the answer, with both streams cancelled: what they hold is returned. Events of equal
         pairs are dropped; a pair that differs is finished with the answer.
Errors:  the error of either stream passes on when it is reached, that of the comparer at once.

    source                --1--2--3--|
    other                 --1--2-----4--|
    sequence_equal        -----------F|
"""

from __future__ import annotations

import operator as python
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeVar

from reactivex import Observable

from penstock.streams.base.errors import CALL_ERRORS
from penstock.streams.base.recorded import recorded
from penstock.streams.boundary.inner_stream import Input
from penstock.streams.execution.handler import called_name, with_plain_results
from penstock.streams.keyed.queues import joined
from penstock.streams.pipelines.flowable import Flowable
from penstock.streams.pipelines.from_iterable import from_iterable
from penstock.streams.protocol.acknowledgement import NOBODY
from penstock.streams.protocol.blame import fail_event
from penstock.streams.protocol.event import Event, drop_all, give_back_all
from penstock.streams.protocol.stage import CLOSED, State, Subscriber, Subscription
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.rx.combining.inputs import as_stream, check_not_async, columns, part_for
from penstock.streams.rx.lift import on_stream
from penstock.streams.stages.demand_stage import BaseDemandStage
from penstock.streams.stages.stream import Stream

__all__ = ["sequence_equal"]

T = TypeVar("T")


@recorded
def sequence_equal(
    second: Observable[T] | Iterable[T], comparer: Callable[[T, T], bool] | None = None
) -> Callable[[Flowable[T]], Flowable[bool]]:
    """Emit whether the stream has the values of `second`, a stream, an Observable or an iterable.

    `comparer(value, other)` says whether two values are equal; by default `==` does.
    """
    check_not_async("sequence_equal", comparer)
    if isinstance(second, Observable):
        other = as_stream("sequence_equal", second)
    else:
        other = from_iterable(second)

    @on_stream
    def operator(source: Flowable[T]) -> Flowable[bool]:
        make = partial(_Comparing, other=other, comparer=comparer)
        return source.then(make, StageInfo("sequence_equal", "", 2, inputs=columns([other])))

    return operator


class _Comparing(BaseDemandStage):
    def __init__(
        self,
        downstream: Subscriber[Any],
        run: Run,
        info: StageInfo,
        other: Stream[Any],
        comparer: Callable[[Any, Any], bool] | None,
    ) -> None:
        super().__init__(downstream, run, info)
        self._equal = (
            python.eq if comparer is None else with_plain_results(comparer, info.name, answers=True)
        )
        self._traced = run.traced(info, called_name(comparer))
        self._input = Input(other, part_for(run, info, 1, other), self)
        # The next event of each, and whether the other has ended.
        self._left: Event[Any] | None = None
        self._right: Event[Any] | None = None
        self._right_ended = False
        self._answer: Event[bool] | None = None

    def on_subscribe(self, subscription: Subscription, /) -> None:
        if self.upstream is not subscription:
            self.within(self._begin, subscription)

    def _begin(self, subscription: Subscription) -> None:
        self._input.attach()
        super().on_subscribe(subscription)

    # What comes.

    def take(self, events: list[Event[Any]], /) -> None:
        (self._left,) = events

    def came(self, source: Input, events: list[Event[Any]], /) -> None:
        if self.state >= CLOSED or self._answer is not None:
            give_back_all(events)
            return
        (self._right,) = events
        self._drain()

    def over(self, source: Input, error: BaseException | None, /) -> None:
        self._right_ended = True
        if error is not None:
            self.fail(error)
        self._drain()

    # The drain loop.

    def step(self) -> bool:
        if self._answer is not None:
            if not self.demand:
                return False
            answer, self._answer = self._answer, None
            self.send(answer)
            # Unless it was cancelled inside.
            if self.state < CLOSED:
                self._cancel_both()
                self.complete()
            return True
        left, right = self._left, self._right
        if left is not None and right is not None:
            self._left = self._right = None
            self._compare(left, right)
        elif self._is_decided(left, right):
            is_equal = left is None and right is None
            self._answer = Event(is_equal, self.run.now(), NOBODY)
        elif not self.demand:
            return False
        elif left is None and not self.asked and not self.state:
            self.ask(1)
        elif right is None and not self._input.requested and not self._right_ended:
            self._input.request(1)
        else:
            return False
        return True

    def _is_decided(self, left: Event[Any] | None, right: Event[Any] | None) -> bool:
        left_over, right_over = left is None and bool(self.state), right is None
        right_over = right_over and self._right_ended
        if left_over and right_over:
            return True
        return (left_over and right is not None) or (right_over and left is not None)

    def _compare(self, left: Event[Any], right: Event[Any]) -> None:
        try:
            is_equal = self._are_equal(left, right)
        except CALL_ERRORS as raised:
            error = fail_event(left, raised, self.info)
            right.give_back()
            self.fail(error)
            return
        except BaseException:
            give_back_all([left, right])
            raise
        if is_equal:
            drop_all([left, right], self.info.name)
        else:
            self._answer = joined(False, [left, right])

    def _are_equal(self, left: Event[Any], right: Event[Any]) -> bool:
        traced = self._traced
        if traced is None:
            return bool(self._equal(left.value, right.value))
        # A call with two events: it has a span below that of each.
        return bool(traced.call(partial(traced.call, self._equal, left), right))

    def _cancel_both(self) -> None:
        if not self.state:
            self.end()
            self.cancel_upstream()
        self._input.cancel()

    def _close(self, state: State) -> None:
        super()._close(state)
        self._input.cancel()

    def release(self) -> None:
        waiting = [self._left, self._right, self._answer]
        self._left = self._right = self._answer = None
        give_back_all(event for event in waiting if event is not None)
        self._input.part.nesting.leave()

    def statistics(self) -> dict[str, Any]:
        return {"waiting": sum(each is not None for each in (self._left, self._right))}
