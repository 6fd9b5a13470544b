"""The self-adjusting mailbox, as published.

Source: Mathias Brandewinder, "Santa's Mailbox", 4 December 2019,
https://brandewinder.com/2019/12/04/santas-mailbox/ (section "A Smarter Mailbox").

For every number of jobs in flight it remembers a throughput estimate, the number in flight divided
by the time the job spent in the system, waiting included. After every message, an arrival as well
as a completion, it takes one step: with the exploration rate a random one up or down, otherwise
one towards a neighbouring level whose estimate is better.

The article itself names the flaw: the level "seems to have a tendency to keep increasing, even with
a low number of tasks in flight". It is here for comparison; use `default()` for real work.
"""

from __future__ import annotations

from penstock.streams.base.recorded import recorded
from penstock.streams.base.validation import check_count, check_share
from penstock.streams.limits.limiter import Outcome

__all__ = ["HillClimb"]

# The resolution of the article's clock (.NET DateTime). Without it, a job that takes no time, as is
# common in virtual time, would make an estimate infinite for ever.
_TICK = 1e-7


@recorded
class HillClimb:
    """Epsilon-greedy search for the level of best throughput, in steps of one, from 1.

    `learning_rate` (0..1) is the weight of a new observation in the exponential average of its
    level, 0 keeps the first one for ever. `exploration_rate` (0..1) is the chance of a random
    step. The article names no values for them; 0.1 each is our choice. `seed` makes a run
    repeatable. The article has no upper bound: `ceiling` is None unless one is given.

    The article has no failures: every completion counts alike, whatever its outcome.
    An operator that knows arrivals calls `on_arrive` and `on_depart`, which are the article's two
    messages; `on_complete` alone is the same arithmetic with the start in place of the arrival.
    The article posts arrivals in batches and steps once per batch; here an arrival is a batch of 1.

    Memory: one float per level that was ever in flight. BadArgument for a rate outside 0..1.
    """

    __slots__ = (
        "_explore",
        "_learn",
        "_random",
        "_throughput",
        "ceiling",
        "limit",
        "made_by",
        "reason",
    )

    floor = 1

    def __init__(
        self,
        learning_rate: float = 0.1,
        exploration_rate: float = 0.1,
        seed: int = 0,
        *,
        ceiling: int | None = None,
    ) -> None:
        self._learn = check_share("learning_rate", learning_rate)
        self._explore = check_share("exploration_rate", exploration_rate)
        # Imported here: slow to import, and the default limiter needs none.
        import random

        self._random = random.Random(seed)
        self._throughput: dict[int, float] = {}
        self.ceiling = None if ceiling is None else check_count("ceiling", ceiling)
        self.limit = 1
        self.reason = "start"

    @property
    def throughput(self) -> dict[int, float]:
        """Estimated jobs per second by number of jobs in flight (a copy)."""
        return dict(self._throughput)

    def on_arrive(self) -> None:
        """A `Batch` message: step without learning anything new."""
        self._step()

    def on_depart(self, now: float, arrived: float, in_flight: int, outcome: Outcome) -> None:
        """A `Completed` message: learn from the time in the system, then step."""
        measure = in_flight / max(now - arrived, _TICK)
        value = self._throughput.get(in_flight)
        if value is not None:
            measure = (1.0 - self._learn) * value + self._learn * measure
        self._throughput[in_flight] = measure
        self._step()

    def on_complete(
        self, now: float, started: float, in_flight_at_start: int, outcome: Outcome
    ) -> None:
        """The same, for an operator that does not know when the event arrived."""
        self.on_depart(now, started, in_flight_at_start, outcome)

    def _step(self) -> None:
        level = self.limit
        if self._random.random() < self._explore:
            level = max(1, level - 1) if self._random.random() < 0.5 else level + 1
            reason = "explored"
        else:
            level = self._better(level)
            reason = "the neighbour did better"
        if self.ceiling is not None:
            level = min(level, self.ceiling)
        if level != self.limit:
            self.limit = level
            self.reason = reason

    def _better(self, level: int) -> int:
        current = self._throughput.get(level)
        if current is None:
            return level
        low = self._throughput.get(level - 1)
        high = self._throughput.get(level + 1)
        # The comparison of both neighbours is strict: with equal ones above the current, up wins.
        if low is not None and low > current and (high is None or low > high):
            return level - 1
        if high is not None and high > current:
            return level + 1
        return level

    def __repr__(self) -> str:
        return f"HillClimb({self._learn}, {self._explore}, limit={self.limit})"
