"""Poison-message detection: which events may have crashed the worker of a partition.

A worker that dies, or that an event blocks for longer than its leases last, leaves no record of
which event it was. So the next owner processes the events that may have been in progress one at a
time, and records each before it begins: if that worker is lost too, it is known which event it was
processing. On its last attempt an event is alone in its worker, so that no other can be the cause:
only then is it dead-lettered.
"""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = ["Doubt"]


class Doubt(NamedTuple):
    """`left` events are still to be processed one at a time. `trying` is the one in progress, by
    its message and its place in it, empty for none; it may be `alone` in its worker. `tries` has
    the number of workers that each event has cost, or may have cost. The worker may have `window`
    unfinished events, of which any is in doubt if it is lost."""

    left: int = 0
    trying: str = ""
    alone: bool = False
    tries: tuple[tuple[str, int], ...] = ()
    window: int = 0

    @classmethod
    def of(cls, said: dict[str, Any]) -> Doubt:
        """Read an entry, which may have no doubt."""
        try:
            tries = tuple((str(event), int(count)) for event, count in said.get("tries", ()))
            left, window = int(said.get("left", 0)), int(said.get("window", 0))
        except (TypeError, ValueError):
            # Written by another program.
            return cls()
        trying, alone = str(said.get("trying", "")), bool(said.get("alone", False))
        return cls(left, trying, alone, tries, window)

    def said(self) -> dict[str, Any]:
        """The fields of an entry, none if there is no doubt."""
        return {name: value for name, value in self._asdict().items() if value}

    def after_a_loss(self, window: int, attempts: int, floor: int) -> Doubt:
        """The doubt after the loss of a worker, for another one that may have `window` unfinished
        events: any that the first one may have had can be the cause, unless one is known to be. An
        event that was not alone keeps its last attempt."""
        tries = {event: n for event, n in self.tries if int(event.partition(".")[0]) > floor}
        if self.trying:
            cost = self.cost(self.trying) + 1
            tries[self.trying] = cost if self.alone else min(cost, max(1, attempts - 1))
        suspects = max(window, self.window)
        return Doubt(suspects, tries=tuple(tries.items()), window=window)

    def cost(self, event: str) -> int:
        """The workers that an event may have cost: the one whose loss began the doubt, at least."""
        return dict(self.tries).get(event, 1)

    def is_certain(self, event: str, attempts: int) -> bool:
        """Whether an event has cost as many workers as it has attempts, the last one alone."""
        return dict(self.tries).get(event, 0) >= max(attempts, 2)

    def cleared(self, event: str) -> Doubt:
        """The doubt after an event has ended without harming its worker."""
        tries = tuple(one for one in self.tries if one[0] != event)
        return Doubt(self.left - 1, tries=tries, window=self.window)
