"""Laws that every limiter should keep, for tests of your own limiters.

Each law is a function that takes a factory of limiters and raises `LawBroken` if the limiter breaks
it. `check` runs them all. A limiter is driven in virtual time against a simple simulated service
(a *plant*), in well under a second per law.

    def test_my_limiter_keeps_the_laws() -> None:
        check(lambda: Cautious(floor=1, ceiling=100), floor=1, ceiling=100)

The simple plant is a number of servers behind one queue, each job a little longer or shorter than
a tenth of a second. A limiter that keeps the laws need not be a good one: `make bench-limits` in
this repository compares how good they are.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable, Iterable
from itertools import pairwise

from penstock.streams.base.errors import BadArgument, BadLimit, BuildError
from penstock.streams.limits.choice import limit_of, limiter_for
from penstock.streams.limits.limiter import Completion, Limiter, Outcome, list_form

__all__ = [
    "LAWS",
    "Law",
    "LawBroken",
    "check",
    "counts_in_lists_as_one_by_one",
    "falls_when_everything_is_dropped",
    "ignores_the_unit_of_time",
    "is_not_raised_while_it_is_not_used",
    "recovers",
    "repeats_itself",
    "stays_within_its_bounds",
    "survives_odd_clocks",
]

Make = Callable[[], Limiter]
"""Makes a new limiter; an identical one, down to its seed, at each call."""

_SERVERS = 12
_MEAN = 0.1


class LawBroken(AssertionError):
    """A law was broken; the message says how. A note of `check` names the law of a limiter."""


def _made(make: Make) -> Limiter:
    try:
        return limiter_for(make())
    except BuildError as error:
        raise LawBroken(str(error)) from error


def _tell(limiter: Limiter, now: float, started: float, in_flight: int, outcome: Outcome) -> int:
    """The limit after one more completion, which is a number at least."""
    try:
        limiter.on_complete(now, started, in_flight, outcome)
        return limit_of(limiter)
    except BadLimit as error:
        raise LawBroken(str(error)) from error
    except Exception as error:
        raise LawBroken(f"it raised {error!r}") from error


class _Plant:
    """Servers with a queue in front, a limiter, and either a backlog or a fixed amount of work."""

    def __init__(self, limiter: Limiter, at_once: int, unit: float = 1.0) -> None:
        self.limiter = limiter
        self.limits: list[int] = []
        self.completions: list[Completion] = []
        self._limit = limit_of(limiter)
        self.down = False
        self.peak = 0
        self._at_once = at_once
        self._unit = unit
        self._draw = random.Random(1)
        self._now = 0.0
        self._in_flight = 0
        self._number = 0
        self._queue: deque[tuple[float, float, int]] = deque()
        self._busy: list[tuple[float, int, float, int, Outcome]] = []
        self._serving = 0

    def run(self, completions: int) -> list[int]:
        """The limits after each of so many more completions."""
        before = len(self.limits)
        for _ in range(completions):
            self._fill()
            self._now, _, started, in_flight, outcome = heapq.heappop(self._busy)
            self._in_flight -= 1
            if outcome is Outcome.SUCCESS:
                self._serving -= 1
            self._serve()
            self.completions.append((self._now, started, in_flight, outcome))
            self._limit = _tell(self.limiter, self._now, started, in_flight, outcome)
            self.limits.append(self._limit)
        return self.limits[before:]

    @property
    def succeeding(self) -> int:
        """Jobs in flight that will succeed."""
        return self._serving + len(self._queue)

    def _fill(self) -> None:
        while self._in_flight < min(self._limit, self._at_once):
            self._in_flight += 1
            self.peak = max(self.peak, self._in_flight)
            took = self._draw.uniform(0.8, 1.2) * _MEAN * self._unit
            if self.down:
                self._end(10 * _MEAN * self._unit, self._now, self._in_flight, Outcome.DROPPED)
            else:
                self._queue.append((took, self._now, self._in_flight))
                self._serve()

    def _serve(self) -> None:
        while self._queue and self._serving < _SERVERS:
            self._serving += 1
            self._end(*self._queue.popleft(), Outcome.SUCCESS)

    def _end(self, after: float, started: float, in_flight: int, outcome: Outcome) -> None:
        self._number += 1
        heapq.heappush(self._busy, (self._now + after, self._number, started, in_flight, outcome))


def stays_within_its_bounds(make: Make, floor: int, ceiling: int) -> None:
    """Under a backlog, an outage, and nonsense at random the limit is an int within its bounds."""
    plant = _Plant(_made(make), ceiling)
    plant.run(1000)
    plant.down = True
    plant.run(300)
    plant.down = False
    plant.run(1000)
    draw, limiter, now = random.Random(2), _made(make), 0.0
    for _ in range(3000):
        now += draw.expovariate(1)
        outcome = draw.choice(list(Outcome))
        started = now - draw.expovariate(0.1)
        plant.limits.append(_tell(limiter, now, started, draw.randint(1, 50), outcome))
    for limit in plant.limits:
        if not floor <= limit <= ceiling:
            raise LawBroken(f"the limit was {limit}, which is not from {floor} to {ceiling}")


def is_not_raised_while_it_is_not_used(make: Make, floor: int, ceiling: int) -> None:
    """With never more than one event in flight the limit does not rise, except for a first step.

    One event uses at least half of a limit of 1 or 2, so any limiter may rise to 2.
    """
    limiter = _made(make)
    allowed = max(2, limiter.limit, floor)
    highest = max(_Plant(limiter, at_once=1).run(3000))
    if highest > allowed:
        raise LawBroken(
            f"one event was in flight at a time, and the limit rose to {highest}, "
            f"which is above {allowed}"
        )


def falls_when_everything_is_dropped(make: Make, floor: int, ceiling: int) -> None:
    """In an outage the limit comes down to a tenth, or to its floor, and never rises meanwhile."""
    plant = _Plant(_made(make), ceiling)
    before = plant.run(2000)[-1]
    plant.down = True
    # What began before the outage still succeeds.
    for _ in range(min(before, ceiling) + 1000):
        if plant.succeeding:
            plant.run(1)
    limits = plant.run(1000)
    for old, new in pairwise(limits):
        if new > old:
            raise LawBroken(f"everything was dropped, and the limit rose from {old} to {new}")
    allowed = max(floor, before // 10, 1)
    if limits[-1] > allowed:
        raise LawBroken(
            f"everything was dropped 1,000 times, and the limit was still {limits[-1]}, "
            f"from {before}: {allowed} at most would do"
        )


def recovers(make: Make, floor: int, ceiling: int) -> None:
    """After an outage the limit comes back to half of what it was, within 2,000 completions."""
    plant = _Plant(_made(make), ceiling)
    before = plant.run(2000)[-1]
    plant.down = True
    plant.run(min(before, ceiling) + 1000)
    plant.down = False
    after = max(plant.run(2000))
    if 2 * after < before:
        raise LawBroken(f"2,000 completions after an outage the limit was {after}, not {before}")


def repeats_itself(make: Make, floor: int, ceiling: int) -> None:
    """The same calls give the same limits: no clock, and randomness only from a seed."""
    once, again = _Plant(_made(make), ceiling).run(2000), _Plant(_made(make), ceiling).run(2000)
    if once != again:
        raise LawBroken(f"the same calls gave {_difference(once, again)}")


def ignores_the_unit_of_time(make: Make, floor: int, ceiling: int) -> None:
    """Work that takes a thousand times as long, or less, gives the same limits."""
    seconds = _Plant(_made(make), ceiling).run(2000)
    # Powers of two: no digit is lost, so every decision must be the same.
    for unit in (2.0**-10, 2.0**10):
        scaled = _Plant(_made(make), ceiling, unit).run(2000)
        if scaled != seconds:
            raise LawBroken(f"times multiplied by {unit:g} gave {_difference(seconds, scaled)}")


def survives_odd_clocks(make: Make, floor: int, ceiling: int) -> None:
    """Work of no duration, and clocks that jump, raise no error and break no bound."""
    limiter, now = _made(make), 100.0
    for number in range(2000):
        now += {500: -50.0, 1000: 1e6, 1500: -1e6}.get(number, 0.01)
        took = (0.0, 0.1, -0.1)[number % 3]
        try:
            limit = _tell(limiter, now, now - took, limiter.limit, Outcome.SUCCESS)
        except LawBroken as error:
            raise LawBroken(f"on an odd clock {error}") from error.__cause__
        if not floor <= limit <= ceiling:
            raise LawBroken(f"on an odd clock the limit was {limit}")


def counts_in_lists_as_one_by_one(make: Make, floor: int, ceiling: int) -> None:
    """A list gives the limit of as many single completions, if the limiter takes lists."""
    plant = _Plant(_made(make), ceiling)
    plant.run(1000)
    plant.down = True
    plant.run(300)
    plant.down = False
    plant.run(1000)
    limiter, draw, at = _made(make), random.Random(3), 0
    report = list_form(limiter)
    while report is not None and at < len(plant.completions):
        size = draw.randint(1, 20)
        try:
            report(plant.completions[at : at + size])
            limit = limit_of(limiter)
        except Exception as error:
            raise LawBroken(f"of a list it raised {error!r}") from error
        at = min(at + size, len(plant.completions))
        if limit != plant.limits[at - 1]:
            raise LawBroken(
                f"after {at} completions, reported in lists, the limit was {limit}, "
                f"and {plant.limits[at - 1]} when reported one by one"
            )


Law = Callable[[Make, int, int], None]

LAWS: tuple[Law, ...] = (
    stays_within_its_bounds,
    is_not_raised_while_it_is_not_used,
    falls_when_everything_is_dropped,
    recovers,
    repeats_itself,
    ignores_the_unit_of_time,
    survives_odd_clocks,
    counts_in_lists_as_one_by_one,
)


def check(make: Make, floor: int, ceiling: int, but: Iterable[Law] = ()) -> None:
    """Raise LawBroken if a limiter breaks a law, except those it is known to break.

    `make` makes a new limiter, whose limit stays from `floor` to `ceiling`. A note on the error
    names the law. Raises BadArgument if anything but a law is left out.
    """
    left_out = list(but)
    for one in left_out:
        if one not in LAWS:
            names = ", ".join(law.__name__ for law in LAWS)
            raise BadArgument(f"but={left_out}: {one!r} is not one of the laws: {names}")
    for law in LAWS:
        if law in left_out:
            continue
        try:
            law(make, floor, ceiling)
        except LawBroken as broken:
            name = law.__name__
            broken.add_note(f"the law is `{name}`, which `but=[{name}]` leaves out")
            raise


def _difference(one: list[int], other: list[int]) -> str:
    number = next(i for i, (a, b) in enumerate(zip(one, other, strict=True)) if a != b)
    return f"{one[number]} once and {other[number]} the other time, at completion {number + 1}"
