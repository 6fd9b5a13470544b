"""What is known of the events that may have cost a partition its worker.

A worker that dies, or that an event blocks for longer than its leases last, leaves no word of which
event it was. So the next owner works on the events that were within reach one at a time, and writes
down which, before each begins: if that worker is lost too, it is known what it had at work. On its
last attempt an event is alone in its worker, so that no other can be the cause: only then is it
given up on.
"""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = ["Doubt"]


class Doubt(NamedTuple):
    """`left` events are still to be worked on one at a time. `trying` is the one that is begun, by
    its message and its place in that, empty for none; it may be `alone` in its worker. `tries` has
    the workers that an event has cost while it was the one, and what it may have cost before."""

    left: int = 0
    trying: str = ""
    alone: bool = False
    tries: tuple[tuple[str, int], ...] = ()

    @classmethod
    def of(cls, said: dict[str, Any]) -> Doubt:
        """What an entry says, which may be nothing."""
        try:
            tries = tuple((str(event), int(count)) for event, count in said.get("tries", ()))
            left, trying = int(said.get("left", 0)), str(said.get("trying", ""))
        except (TypeError, ValueError):
            # Somebody else wrote it.
            return cls()
        return cls(left, trying, bool(said.get("alone", False)), tries)

    def said(self) -> dict[str, Any]:
        """What an entry says, which is nothing where there is no doubt."""
        return {name: value for name, value in self._asdict().items() if value}

    def after_a_loss(self, suspects: int, attempts: int, floor: int) -> Doubt:
        """A worker was lost: any of the next so many events may be the cause, unless one is known
        to be. Whoever was not alone keeps its last attempt."""
        tries = {event: n for event, n in self.tries if int(event.partition(".")[0]) > floor}
        if self.trying:
            cost = self.cost(self.trying) + 1
            tries[self.trying] = cost if self.alone else min(cost, max(1, attempts - 1))
        return Doubt(suspects, tries=tuple(tries.items()))

    def cost(self, event: str) -> int:
        """The workers that an event may have cost: the one whose loss began the doubt, at least."""
        return dict(self.tries).get(event, 1)

    def is_certain(self, event: str, attempts: int) -> bool:
        """Whether an event has cost as many workers as it has attempts, the last one alone."""
        return dict(self.tries).get(event, 0) >= max(attempts, 2)

    def cleared(self, event: str) -> Doubt:
        """An event has ended, and its worker is still there."""
        tries = tuple(one for one in self.tries if one[0] != event)
        return Doubt(self.left - 1, tries=tries)
