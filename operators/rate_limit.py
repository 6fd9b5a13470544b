"""Pass at most `rate` events per period, or events of at most that cost, by withholding demand.

Items:   every event, in order; none is dropped.
Time:    a token bucket (RFC 2697) that holds `burst` tokens and gains `rate` each `per` seconds: an
         event takes one, or as many as it costs, when it passes. In any `per` seconds events of at
         most `rate + burst` tokens pass, what `RateLimit.charge` took or gave back included. Stages
         that share a limit are served in the order in which their events came: an expensive one is
         not overtaken again and again. One timer.
Memory:  the one event that is next and waits for its tokens.
Demand:  one event at a time; the next is requested when the last has passed.
Ends:    with the source, after the waiting event. Cancel returns that one.
Errors:  passes the source's on at once; the waiting event is returned. A cost that cannot be read,
         that is not a number of at least 0, or that is above `burst` (CostTooHigh: it could never
         pass) fails its event: the pipeline stops, or `on_error="skip"` or `route(sink)` go on.

    source                        a-b-c-d------|
    rate_limit(1, 1)              a---b---c---d|     a tick is a quarter of a second
    rate_limit(1, 1, 2, cost=f)   a-b-----c---d|     c costs 2, the others 1
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from math import inf, isfinite
from typing import Any, TypeVar, cast

from penstock.streams.base.clock import call_on, clock_of, monotonic, running_loop
from penstock.streams.base.errors import (
    CALL_ERRORS,
    BuildError,
    CostTooHigh,
    NoLoop,
    WrongType,
    describe,
    own_error,
)
from penstock.streams.base.keys import Key, key_function, key_name
from penstock.streams.base.recorded import recorded
from penstock.streams.base.validation import is_at_least, is_count, is_positive
from penstock.streams.execution.handler import called_name
from penstock.streams.failures.policy import OnError, check_policy, routed_by
from penstock.streams.keyed.key_faults import KeyFaults
from penstock.streams.pipelines.flowable import Flowable
from penstock.streams.protocol.event import Event
from penstock.streams.protocol.stage import CLOSED, Subscriber
from penstock.streams.protocol.stage_info import Picture, Placement, StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.runtime.timer import Timer
from penstock.streams.rx.lift import on_stream
from penstock.streams.stages.demand_stage import BaseDemandStage

__all__ = ["RateLimit", "rate_limit"]

T = TypeVar("T")

Cost = str | Callable[[T], float]

# A bucket refilled in many steps may miss a token by a rounding error, as a part of the bucket.
_ROUNDING = 1e-9


@recorded
class RateLimit:
    """A rate that several stages, also of several pipelines on one loop, may share.

    Assigning `rate`, `per` or `burst` changes it at once, also for the event that waits, from any
    thread. Source: the token bucket of RFC 2697.
    """

    def __init__(self, rate: float, per: float = 1.0, burst: int = 1) -> None:
        _check(rate, per, burst)
        self._settings = rate, per, burst
        self._tokens = float(burst)
        # When they were counted, and the tokens gained each second since.
        self._at: float | None = None
        self._gain = rate / per
        # The loop of its stages, its clock, and those of them that wait, in order.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._now = monotonic
        self._line: deque[_Bucket] = deque()

    @property
    def rate(self) -> float:
        """Tokens gained each `per` seconds."""
        return self._settings[0]

    @rate.setter
    def rate(self, rate: float) -> None:
        self._set(rate, self.per, self.burst)

    @property
    def per(self) -> float:
        """The seconds in which `rate` tokens are gained."""
        return self._settings[1]

    @per.setter
    def per(self, per: float) -> None:
        self._set(self.rate, per, self.burst)

    @property
    def burst(self) -> int:
        """The tokens that the bucket holds at most."""
        return self._settings[2]

    @burst.setter
    def burst(self, burst: int) -> None:
        self._set(self.rate, self.per, burst)

    def _set(self, rate: float, per: float, burst: int) -> None:
        _check(rate, per, burst)
        self._settings = rate, per, burst
        call_on(self._loop, self._changed)

    def _changed(self) -> None:
        if self._loop is not None:
            self._refill()
        self._gain = self.rate / self.per
        self._tokens = min(float(self.burst), self._tokens)
        self._wake_first()

    def charge(self, cost: float) -> None:
        """Take `cost` more tokens now, for an event that passed and cost more than was estimated.

        A negative cost gives tokens back, at most as many as the bucket has room for. The balance
        may fall below zero; the next event then waits until it has recovered. Call it on the loop
        of the pipeline, as an async handler is. Raises ValueError for a cost that is not a number,
        and NoLoop in another thread or process, where it would have no effect.
        """
        if not (is_at_least(cost, -inf) and isfinite(cost)):
            raise ValueError(f"RateLimit.charge({describe(cost)}): a number is needed")
        if self._loop is None or running_loop() is not self._loop:
            raise NoLoop(
                "RateLimit.charge: no stage on this event loop uses the limit. Call it in an async "
                "handler, or, if the handler runs in a thread or another process, in a map() after "
                "it."
            )
        self._refill()
        self._tokens = min(float(self.burst), self._tokens - float(cost))
        self._wake_first()

    # What its stages call.

    def join(self) -> None:
        """A stage on the running loop begins to use the limit."""
        loop = running_loop()
        if loop is not self._loop:
            # What waits on a loop that was closed would never leave the line.
            self._line.clear()
            self._loop, self._now = loop, clock_of(loop)

    def take(self, stage: _Bucket) -> bool:
        """Take the tokens for the event of `stage`, or let it wait in line until it is woken."""
        if self._line and self._line[0] is not stage:
            self._line.append(stage)
            return False
        self._refill()
        if self._tokens < self._needed(stage) - _ROUNDING * self.burst:
            if not self._line:
                self._line.append(stage)
            self._wake_first()
            return False
        self._tokens -= stage.cost
        self.leave(stage)
        return True

    def leave(self, stage: _Bucket) -> None:
        """`stage` waits no longer."""
        if stage in self._line:
            self._line.remove(stage)
            self._refill()
            self._wake_first()

    def _wake_first(self) -> None:
        """Wake the first in line when there will be enough tokens for its event."""
        if self._line:
            first = self._line[0]
            seconds = (self._needed(first) - self._tokens) / self._gain
            # A shorter wait might not move the clock at all.
            first.wake_in(max(_ROUNDING, seconds))

    def _needed(self, stage: _Bucket) -> float:
        # The bucket may have become smaller than what the event that waits costs.
        return min(stage.cost, float(self.burst))

    def _refill(self) -> None:
        now = self._now()
        if self._at is not None and now > self._at:
            gained = (now - self._at) * self._gain
            self._tokens = min(float(self.burst), self._tokens + gained)
        self._at = now


def _check(rate: object, per: object, burst: object) -> None:
    if not (is_positive(rate) and is_positive(per) and is_count(burst)):
        raise BuildError(
            f"rate_limit({rate!r}, per={per!r}, burst={burst!r}): the rate and per must be "
            "positive and burst a whole number of at least 1"
        )


@recorded
def rate_limit(
    rate: float | RateLimit,
    per: float = 1.0,
    burst: int = 1,
    cost: Cost[T] | None = None,
    *,
    on_error: OnError = "stop",
) -> Callable[[Flowable[T]], Flowable[T]]:
    """Let `rate` events pass each `per` seconds, and `burst` at once after a pause.

    With `cost`, a field's name or a function of the value, it passes events of that total cost,
    such as tokens per minute; `burst` must be at least the cost of the most expensive event. Give a
    `RateLimit` instead of a number to share it between stages, to change it while it runs, or to
    correct an estimated cost when the true one is known (`charge`); it has its own `per` and
    `burst`. Several limits are several stages, one after the other. Raises BuildError unless the
    rate and `per` are positive and `burst` at least 1.

    >>> from penstock import for_each, from_iterable, rate_limit, run
    >>> report = run(from_iterable("ab").pipe(rate_limit(100, per=1)).to(for_each(print)))
    a
    b
    """
    if not isinstance(rate, RateLimit):
        limit = RateLimit(rate, per, burst)
    elif (per, burst) == (1.0, 1):
        limit = rate
    else:
        raise BuildError(
            f"rate_limit(RateLimit(...), per={per!r}, burst={burst!r}): a RateLimit has its "
            "own per and burst, give them there"
        )
    if cost is not None and not (isinstance(cast(Any, cost), str) or callable(cost)):
        raise WrongType(
            f"rate_limit(cost={cost!r}): give a field's name or a function of the value, such as "
            f"lambda value: {cost!r}"
        )
    if cost is not None:
        Key(cost, "cost")
    check_policy(on_error, "rate_limit")
    if cost is None and on_error != "stop":
        raise BuildError("rate_limit(on_error=...): only a cost can fail, and there is no cost=")

    def make(downstream: Subscriber[T], run: Run, info: StageInfo) -> _Bucket:
        own = rate if isinstance(rate, RateLimit) else RateLimit(limit.rate, per, burst)
        return _Bucket(downstream, run, info, own, cost, on_error)

    detail = f"{limit.rate:,.9g} per {limit.per:g} s, burst {limit.burst:,}"
    if cost is not None:
        detail += f", cost {key_name(cost)}"
    calls = called_name(cost)
    untouched = not callable(cost)
    info = StageInfo(
        "rate_limit",
        detail,
        1,
        routed=routed_by(on_error),
        placement=Placement(untouched=untouched, reads=(cost,)),
        picture=Picture(calls=calls),
    )
    return on_stream(lambda source: source.then(make, info, passes=True))


class _Bucket(BaseDemandStage):
    """Holds one event until it gets its tokens.

    They are taken when the event passes, not when it is requested: a stage with an idle source
    keeps no tokens from others that share the limit.
    """

    def __init__(
        self,
        downstream: Subscriber[Any],
        run: Run,
        info: StageInfo,
        limit: RateLimit,
        cost: Cost[Any] | None,
        on_error: OnError,
    ) -> None:
        super().__init__(downstream, run, info)
        self.cost = 1.0
        self._limit = limit
        self._cost_of = None if cost is None else key_function(cost)
        self._faults = KeyFaults(on_error, run, info, cost, use=_checked, unfit="cannot be a cost")
        self._held: Event[Any] | None = None
        self._waits = False
        self._timer = Timer(run, info, self._due)
        limit.join()

    def take(self, events: list[Event[Any]], /) -> None:
        (event,) = events
        if self._cost_of is not None:
            try:
                self.cost = self._affordable(_checked(self._cost_of(event.value)))
            except CALL_ERRORS as raised:
                error = own_error(raised)
                if not self._faults.survives(event, error):
                    self.fail(error)
                return
        if self.state >= CLOSED:
            # The function of the cost has cancelled the pipeline.
            event.give_back()
        else:
            self._held = event

    def _affordable(self, cost: float) -> float:
        burst = self._limit.burst
        if cost > burst:
            raise CostTooHigh(
                f"the event costs {cost:,.9g}, and can never pass: {self.info} holds at most "
                f"{burst:,}. Give a burst= that is at least the cost of the most expensive event, "
                'or go on without it: on_error="skip", or on_error=route(sink).'
            )
        return cost

    def step(self) -> bool:
        if self._held is not None:
            return not self._waits and self._pass_on(self._held)
        if self.state:
            self.complete()
        elif self.demand and not self.asked:
            self.ask(1)
        else:
            return False
        return True

    def _pass_on(self, event: Event[Any]) -> bool:
        if not self._limit.take(self):
            self._waits = True
            return False
        self._held = None
        self.send(event)
        return True

    def wake_in(self, seconds: float) -> None:
        """Try again after this time, and not before."""
        self._timer.set(seconds)

    def _due(self) -> None:
        self._waits = False
        self._drain()

    def release(self) -> None:
        self._timer.cancel()
        held, self._held = self._held, None
        self._limit.leave(self)
        if held is not None:
            held.give_back()

    def statistics(self) -> dict[str, Any]:
        """The present `rate`, and the event that waits for its tokens."""
        waiting = int(self._held is not None)
        return {"rate": self._limit.rate, "waiting": waiting, **self._faults.statistics()}


def _checked(cost: Any) -> float:
    if not is_at_least(cost, 0):
        raise ValueError(f"{describe(cost)} is not a cost: a number of at least 0 is needed")
    return float(cost)
