"""One limit for all stages that call the same dependency.

Two pipelines that call one database should not each find out what it can bear: each limiter would
see the load of the other as the database's weakness. With `Shared` one limiter receives the
completions of all of them, and its limit bounds their sum.
"""

from __future__ import annotations

from collections import deque
from itertools import count
from typing import TYPE_CHECKING, Any, Protocol, Self

from penstock.streams.base.errors import BuildError
from penstock.streams.base.recorded import recorded
from penstock.streams.limits.choice import Limit, limit_of, limiter_for
from penstock.streams.limits.limiter import Limiter, Outcome

if TYPE_CHECKING:
    import asyncio

__all__ = ["Member", "Shared"]

_numbers = count(1)


class Running(Protocol):
    """A running, which may have an event loop."""

    @property
    def has_loop(self) -> bool: ...

    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...


class Member(Protocol):
    """A running stage under a shared limit."""

    @property
    def in_flight(self) -> int: ...
    @property
    def slots(self) -> int:
        """Calls that it may have in flight."""
        ...

    @property
    def lacking(self) -> int:
        """Slots that it could use but does not have; below 0, those that it cannot use."""
        ...

    @property
    def place(self) -> tuple[Running, int]:
        """The running that it is part of, and its number there."""
        ...

    def grant(self, n: int) -> None:
        """Give it `n` slots more; below 0, take as many back."""

    def begin(self) -> None:
        """Use the slots that were given."""

    def follow(self) -> object:
        """The limit has changed."""

    def hold_back(self, seconds: float) -> None:
        """Begin no call for this long."""


@recorded
class Shared:
    """`Shared(limiter)`: one object to give to each stage that calls the same dependency.

    >>> from penstock import adaptive_flat_map
    >>> from penstock import Fixed, from_iterable
    >>> database = Shared(Fixed(20))
    >>> orders = from_iterable([1, 2]).pipe(adaptive_flat_map(str, limit=database))
    >>> prices = from_iterable([3, 4]).pipe(adaptive_flat_map(str, limit=database))

    `limiter` is what `limit=` takes: a number, a pair (floor, ceiling), a limiter, or nothing for
    the default. Unlike any other limiter it is not copied for each run: it keeps what it has
    learnt. The stages may be of one pipeline or of several, on one event loop at a time.

    However many stages there are, no more calls than the limit are in flight in all of them
    together, and the limiter receives each completion with the number in flight in all, except of
    a plain handler's call while no other was in flight, from which nothing can be learnt. When no
    slot is free, the stages that have events waiting get one call each, in rotation. A stage
    requests what there is room for, and at least one event, so that it knows whether there is
    work: at most one more than the limit are ever in it and not finished. A plain handler takes one
    slot for one call after another, as long as no other stage waits for one.

    A call whose iterator waits for room keeps its slot; so if a stage further down shares the
    limit, it fails with a BuildError. Time: a few additions per call and stage. Memory: constant.
    Raises BuildError for anything else.
    """

    def __init__(self, limiter: Limit = None) -> None:
        self.limiter: Limiter = limiter_for(limiter)
        self.number = next(_numbers)
        """Distinguishes it from others in the statistics."""
        self._allowed = limit_of(self.limiter)
        self._members: list[Member] = []
        # Members that lack a slot, the longest waiting first.
        self._line: deque[Member] = deque()
        self._dealing = False
        self.flushed = 0
        """Calls that have ended since slots were last dealt, in whose place others may begin."""

    # A limiter like any other.

    @property
    def limit(self) -> int:
        """The limiter's present limit."""
        return self.limiter.limit

    @property
    def reason(self) -> str:
        """The limiter's reason for its limit; "" if it gives none."""
        return getattr(self.limiter, "reason", "")

    @property
    def floor(self) -> int | None:
        """The limiter's lowest limit, if it has one."""
        return getattr(self.limiter, "floor", None)

    @property
    def ceiling(self) -> int | None:
        """The limiter's highest limit, if it has one."""
        return getattr(self.limiter, "ceiling", None)

    def on_complete(
        self, now: float, started: float, in_flight_at_start: int, outcome: Outcome
    ) -> None:
        """Report to the limiter."""
        self.limiter.on_complete(now, started, in_flight_at_start, outcome)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        # What makes it shared: a run does not get a copy.
        return self

    def __repr__(self) -> str:
        return f"Shared({self.limiter!r})"

    # What its stages call.

    @property
    def in_flight(self) -> int:
        """Calls in flight in all stages together."""
        in_flight = 0
        for member in self._members:
            in_flight += member.in_flight
        return in_flight

    @property
    def free(self) -> int:
        """Slots that no member has; below 0 after the limit fell."""
        free = self._allowed
        for member in self._members:
            free -= member.slots
        return free

    @property
    def is_wanted(self) -> bool:
        """Whether a stage waits for a slot."""
        return bool(self._line)

    def statistics(self) -> dict[str, Any]:
        """Its `number`, and the `in_flight` of all the `stages` together."""
        return {
            "number": self.number,
            "in_flight": self.in_flight,
            "stages": len(self._members),
        }

    def join(self, member: Member) -> None:
        """Add a member. Raises BuildError if it runs on another loop."""
        # A loop that was closed during a run leaves its stages behind.
        alive = [other for other in self._members if other is not member and _is_alive(other)]
        if any(_loop(other) is not _loop(member) for other in alive):
            raise BuildError(
                f"{self!r} is in use on another event loop: one limiter can be shared by the "
                "pipelines of one loop; give those of the other one a Shared of their own"
            )
        self._members = [*alive, member]
        self._line = deque(other for other in self._line if other in alive)

    def is_above_another(self, member: Member) -> bool:
        """Whether a later stage of its pipeline shares the limit too."""
        run, number = member.place
        return any(
            other.place[0] is run and other.place[1] > number
            for other in self._members
            if other is not member
        )

    def leave(self, member: Member) -> None:
        """Remove a member and free its slots."""
        if member in self._members:
            self._members.remove(member)
            if member in self._line:
                self._line.remove(member)
            self._deal()

    def settle(self, member: Member) -> None:
        """Take back slots that a member cannot use; queue it for those that it lacks."""
        lacking = member.lacking
        if lacking < 0:
            member.grant(lacking)
        elif lacking and member not in self._line:
            self._line.append(member)
        self._deal()

    def replaced(self, n: int) -> int:
        """`n` calls begin: returns how many have just ended, whose places they may have taken."""
        flushed = self.flushed
        self.flushed = max(0, flushed - n)
        return flushed

    def moved(self, limit: int) -> None:
        """The limit has changed."""
        self._allowed = limit
        for member in tuple(self._members):
            member.follow()
        self._deal()

    def hold_back(self, seconds: float) -> None:
        """Let no member begin a call for this long: all call the service that asks for it."""
        for member in tuple(self._members):
            member.hold_back(seconds)

    def _deal(self) -> None:
        # A call may end at once and come back here: the loop below handles that.
        if self._dealing:
            return
        self._dealing = True
        try:
            while self._line and self.free > 0:
                member = self._line.popleft()
                lacking = member.lacking
                if lacking > 0:
                    # One at a time, unless nobody else waits.
                    dealt = 1 if self._line else min(lacking, self.free)
                    member.grant(dealt)
                    if lacking > dealt:
                        self._line.append(member)
                    member.begin()
        finally:
            self._dealing = False
            self.flushed = 0


def _loop(member: Member) -> asyncio.AbstractEventLoop | None:
    run, _ = member.place
    return run.loop if run.has_loop else None


def _is_alive(member: Member) -> bool:
    loop = _loop(member)
    return loop is None or not loop.is_closed()
