"""Events that wait for their next attempt."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from penstock.streams.failures.policy import Retry
from penstock.streams.protocol.event import Event
from penstock.streams.runtime.context import Run

__all__ = ["RetryQueue"]


class RetryQueue:
    """Counts attempts and holds the events between two of them.

    At most as many as the stage's limit wait without a working slot; one more keeps its own.
    `again(event, in_slot)` is called when the wait of an event is over.
    """

    def __init__(self, policy: Retry, run: Run, again: Callable[[Event[Any], bool], None]) -> None:
        self._policy = policy
        self._run = run
        self._info = run.attaching
        self._again = again
        # Imported here: slow to import, and most pipelines retry nothing.
        import random

        self._rng = random.Random(policy.backoff.seed)
        self._attempts: dict[Event[Any], int] = {}
        self._timers: dict[Event[Any], asyncio.TimerHandle] = {}
        self._in_slot: set[Event[Any]] = set()

    def __len__(self) -> int:
        return len(self._timers)

    @property
    def waiting(self) -> int:
        """Events that wait and take no working slot."""
        return len(self._timers) - len(self._in_slot)

    def count(self, event: Event[Any]) -> int:
        """The attempts so far, after one more has failed."""
        return self._attempts.get(event, 0) + 1

    def forget(self, event: Event[Any]) -> None:
        """There will be no more attempts."""
        self._attempts.pop(event, None)

    def allows(self, error: BaseException, attempts: int) -> bool:
        """Whether there is another attempt after this one."""
        return isinstance(error, Exception) and attempts < self._policy.times

    def park(self, event: Event[Any], attempts: int, in_slot: bool) -> None:
        """Wait for the next attempt, in the event's working slot or without one."""
        self._attempts[event] = attempts
        if in_slot:
            self._in_slot.add(event)
        delay = self._policy.backoff.delay(attempts, self._rng)
        self._timers[event] = self._run.call_later(delay, self._info, self._over, event)

    def _over(self, event: Event[Any]) -> None:
        del self._timers[event]
        in_slot = event in self._in_slot
        self._in_slot.discard(event)
        self._again(event, in_slot)

    def clear(self) -> list[tuple[Event[Any], bool]]:
        """Take out all that wait, each with whether it kept its slot."""
        parked = [(event, event in self._in_slot) for event in self._timers]
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._in_slot.clear()
        self._attempts.clear()
        return parked
