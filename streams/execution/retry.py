"""The queue of events that wait for their next attempt."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from penstock.streams.base.errors import Snooze
from penstock.streams.execution.call import attempts_at, call_of
from penstock.streams.failures.policy import Retry
from penstock.streams.protocol.event import Event
from penstock.streams.runtime.context import Run

__all__ = ["RetryQueue"]


class RetryQueue:
    """Counts attempts and holds events between two of them; `again` is called when the wait of an
    event is over."""

    def __init__(self, policy: Retry, run: Run, again: Callable[[Event[Any]], None]) -> None:
        self._policy = policy
        self._run = run
        self._info = run.attaching
        self._again = again
        # Imported here: slow to import, and most pipelines retry nothing.
        import random

        self._rng = random.Random(policy.backoff.seed)
        self.retries = 0
        """Attempts after the first, of all events."""
        self._timers: dict[Event[Any], asyncio.TimerHandle] = {}

    @property
    def waiting(self) -> int:
        """Events that wait for their next attempt."""
        return len(self._timers)

    def allows(self, event: Event[Any], error: BaseException) -> bool:
        """Whether another attempt follows the current one, which failed with `error`."""
        tries = isinstance(error, self._policy.on) and not isinstance(error, Snooze)
        return tries and attempts_at(event) < self._policy.times

    def asked(self, error: BaseException) -> float:
        """For how many seconds `error` asks to wait. Raises what the user's function does."""
        return self._policy.asked(error)

    def failed(self, event: Event[Any]) -> int:
        """Count an attempt at `event` that another one follows; returns how many there were."""
        self.retries += 1
        call = call_of(event)
        call.attempts += 1
        return call.attempts

    def put(self, event: Event[Any], asked: float) -> None:
        """Hold `event` for its backoff, or for the seconds that its error `asked` for."""
        attempts = self.failed(event)
        delay = max(asked, self._policy.backoff.delay(attempts, self._rng))
        self._timers[event] = self._run.call_later(delay, self._info, self._over, event)

    def _over(self, event: Event[Any]) -> None:
        del self._timers[event]
        self._again(event)

    def clear(self) -> list[Event[Any]]:
        """Remove and return all events."""
        retried = list(self._timers)
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        return retried
