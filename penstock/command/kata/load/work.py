"""What handling one event costs: a normally distributed time, 10 ms with sigma 1 ms.

The time is a function of the event's uuid, whose digits are the random number: every variant
does exactly the same work for the same load, in whatever order it does it.

Source: `Sleeper.randSleep(10, 1)` of T. Nurkiewicz, "Small scale stream processing kata".
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from statistics import NormalDist

from penstock.command.kata.load.events import FIRST_CLIENT, Event

__all__ = ["Work"]

_STANDARD_NORMAL = NormalDist()


@dataclass(frozen=True, slots=True)
class Work:
    """The model of the handler; `mean` and `sigma` in seconds.

    An event of the first client takes `slow` times as long as one of the others.
    Raises ValueError for a negative or infinite mean or sigma, or if `slow` is below 1.
    """

    mean: float = 0.010
    sigma: float = 0.001
    slow: float = 1.0

    def __post_init__(self) -> None:
        if not (0 <= self.mean < float("inf") and 0 <= self.sigma < float("inf")):
            raise ValueError(
                f"mean {self.mean} and sigma {self.sigma} must not be negative, and must be finite"
            )
        if not 1 <= self.slow < float("inf"):
            raise ValueError(f"slow-client is {self.slow:g}, must be at least 1")

    def seconds(self, event: Event) -> float:
        """How long this event takes; never negative."""
        # The first 32 bits: the version and variant bits of the uuid come later.
        uniform = (int(event["uuid"][:8], 16) + 0.5) / 2**32
        times = self.slow if event["client_id"] == FIRST_CLIENT else 1.0
        return max(0.0, times * (self.mean + self.sigma * _STANDARD_NORMAL.inv_cdf(uniform)))

    def block(self, event: Event) -> None:
        """Work on the event; the calling thread is blocked."""
        time.sleep(self.seconds(event))

    async def pause(self, event: Event) -> None:
        """Work on the event; the loop is free for others."""
        await asyncio.sleep(self.seconds(event))
