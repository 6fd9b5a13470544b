"""Pass at most `rate` events per period, by withholding demand; none is dropped.

Items:   every event, in order.
Time:    a token bucket (RFC 2697) that holds `burst` tokens and gains `rate` each `per` seconds:
         an event takes one. In any `per` seconds at most `rate + burst` events pass. One timer.
Memory:  the one event that is next and waits for its token.
Demand:  one event at a time; the next is requested when the last has passed.
Ends:    with the source, after the waiting event. Cancel returns that one.
Errors:  passes the source's on at once; the waiting event is returned.

    source              a-b-c-d------|
    rate_limit(1, 1)    a---b---c---d|     a tick is a quarter of a second
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from penstock.streams.errors import BuildError
from penstock.streams.flowable import Flowable
from penstock.streams.protocol.demand_stage import DemandStage
from penstock.streams.protocol.event import Event
from penstock.streams.protocol.stage import StageInfo, Subscriber
from penstock.streams.runtime.context import Run
from penstock.streams.validation import is_count, is_positive

__all__ = ["RateLimit", "rate_limit"]

T = TypeVar("T")


class RateLimit:
    """A rate that several stages, also of several pipelines on one loop, may share.

    Assigning `rate` changes it from the next token on. Source: the token bucket of RFC 2697.
    """

    def __init__(self, rate: float, per: float = 1.0, burst: int = 1) -> None:
        self.per = per
        self.burst = burst
        self.rate = rate
        self._tokens = float(burst)
        self._at: float | None = None

    @property
    def rate(self) -> float:
        """Tokens gained each `per` seconds."""
        return self._rate

    @rate.setter
    def rate(self, rate: float) -> None:
        if not (is_positive(rate) and is_positive(self.per) and is_count(self.burst)):
            raise BuildError(
                f"rate_limit({rate!r}, per={self.per!r}, burst={self.burst!r}): the rate and "
                "per must be positive and burst a whole number of at least 1"
            )
        self._rate = rate

    def take(self, now: float) -> bool:
        """Take a token, if there is one at `now` (seconds)."""
        self._refill(now)
        if self._tokens < 1 - _ROUNDING:
            return False
        self._tokens -= 1
        return True

    def wait(self, now: float) -> float:
        """Seconds until the next token."""
        self._refill(now)
        # A shorter wait might not move the clock at all.
        return max(_ROUNDING, (1 - self._tokens) * self.per / self._rate)

    def _refill(self, now: float) -> None:
        if self._at is not None and now > self._at:
            gained = (now - self._at) * self._rate / self.per
            self._tokens = min(float(self.burst), self._tokens + gained)
        self._at = now


# A bucket refilled in many steps may miss the whole token by a rounding error.
_ROUNDING = 1e-9


def rate_limit(
    rate: float | RateLimit, per: float = 1.0, burst: int = 1
) -> Callable[[Flowable[T]], Flowable[T]]:
    """Let `rate` events pass each `per` seconds, and `burst` at once after a pause.

    Give a `RateLimit` instead of a number to share it between stages or to change it while it
    runs; it has its own `per` and `burst`. Raises BuildError unless the rate and `per` are
    positive and `burst` at least 1.
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

    def make(downstream: Subscriber[T], run: Run, info: StageInfo) -> _Bucket:
        own = rate if isinstance(rate, RateLimit) else RateLimit(limit.rate, per, burst)
        return _Bucket(downstream, run, info, own)

    detail = f"{limit.rate:g} per {limit.per:g} s, burst {limit.burst}"
    info = StageInfo("rate_limit", detail, 1)
    return lambda source: source.then(make, info, mappings=source.mappings)


class _Bucket(DemandStage):
    """Holds one event until it gets its token.

    The token is taken when the event passes, not when it is requested: a stage with an idle source
    keeps no token from others that share the limit.
    """

    def __init__(
        self, downstream: Subscriber[Any], run: Run, info: StageInfo, limit: RateLimit
    ) -> None:
        super().__init__(downstream, run, info)
        self._limit = limit
        self._held: Event[Any] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def take(self, events: list[Event[Any]], /) -> None:
        (self._held,) = events

    def step(self) -> bool:
        if self._held is not None:
            return self._timer is None and self._pass_on(self._held)
        if self.state:
            self.complete()
        elif self.demand and not self.asked:
            self.ask(1)
        else:
            return False
        return True

    def _pass_on(self, event: Event[Any]) -> bool:
        now = self.run.now()
        if self._limit.take(now):
            self._held = None
            self.send(event)
            return True
        self._timer = self.run.call_later(self._limit.wait(now), self.info, self._due)
        return False

    def _due(self) -> None:
        self._timer = None
        self._drain()

    def release(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        held, self._held = self._held, None
        if held is not None:
            held.give_back()

    def statistics(self) -> dict[str, Any]:
        """The present `rate`, and the event that waits for a token."""
        return {"rate": self._limit.rate, "waiting": int(self._held is not None)}
