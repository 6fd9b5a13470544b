"""Several events of a group whose operators only make one value of them, such as their number."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from typing import Any

from penstock.streams.base.errors import HoldExceeded, counted
from penstock.streams.keyed.queues import hand_over
from penstock.streams.protocol.acknowledgement import Joined
from penstock.streams.protocol.event import RETURNED, Ending, Event, Origin, end_all
from penstock.streams.rx.lift import HOLD
from penstock.streams.stages.demand_stage import BaseDemandStage
from penstock.streams.stages.source_stage import BaseSourceStage

__all__ = ["Gathered", "whole_of"]


class Gathered(Joined):
    """The events of a group, from the second of them until the group is closed.

    Then it is the origin of the event that is made of them. `values` are theirs, or None if only
    their number is wanted. Events of one source that only counts them are not kept, but their
    number, and the tokens of those that have one; nor are their values unless they are wanted. When
    more than `HOLD` events or values are kept, the `stage` fails.
    """

    __slots__ = ("_counted", "_counter", "_first_token", "_stage", "_tokens", "created", "values")

    def __init__(
        self,
        first: Event[Any],
        second: Event[Any],
        stage: BaseDemandStage,
        *,
        values: bool,
    ) -> None:
        super().__init__(())
        # Of the second one if the first must be kept, as one that is traced.
        self._counter = _counting(first.origin) or _counting(second.origin)
        self._counted: int = 0
        self._tokens: list[Any] | None = None
        self.values: list[Any] | None = [] if values else None
        self.created = first.created
        """The earliest time at which one of them was created."""
        self._first_token = first.token
        self._stage = stage
        self.append(first)
        self.append(second)

    @property
    def held(self) -> int:
        """The number of events."""
        return self._counted + len(self.parents)

    def append(self, event: Event[Any]) -> None:
        """One more event of the group."""
        if event.created < self.created:
            self.created = event.created
        if event.origin is self._counter and event.turn is None:
            self._counted += 1
            # It ends with the others, also if an error passes that returns its list.
            event.pending = 0
            if event.token is not None:
                if self._tokens is None:
                    self._tokens = []
                self._tokens.append(event.token)
            if self.values is None:
                return
        else:
            if not isinstance(self.parents, list):
                self.parents = []
            self.parents.append(event)
        if self.values is not None:
            self.values.append(event.value)
        kept = len(self.parents if self.values is None else self.values)
        if kept > HOLD:
            self._stage.fail(
                HoldExceeded(
                    f"{counted(kept, 'input')} in a group of {self._stage.info} wait for an output "
                    f"that does not come (hold {HOLD:,}). Use an operator that answers at once, "
                    "such as scan, or lift(operator, hold=...) to let it hold more."
                )
            )

    def give_back(self) -> None:
        """Return the events to their sources."""
        self._end(RETURNED, None)

    def join(self) -> Event[Any]:
        """The event that is made of them all, with their turns."""
        value = self.held if self.values is None else self.values
        event = Event(value, self.created, self, self._first_token)
        event.turn = hand_over(self.parents)
        # Those that were made of it need not keep it.
        self.values = None
        return event

    def settle(self, events: list[Event[Any]], ending: Ending, why: Any, /) -> None:
        self._end(ending, why)

    def _end(self, ending: Ending, why: Any) -> None:
        if self._counter is not None and self._counted:
            self._counter.count_ends(self._counted, self._tokens or (), ending, why)
        end_all(self.parents, ending, why)

    def roots(self) -> Iterator[tuple[Origin, Any]]:
        if self._counter is not None and self._counted:
            yield from zip(repeat(self._counter), self._tokens or (None,))
        yield from super().roots()


def whole_of(group: Gathered | Event[Any], *, values: bool) -> Event[Any]:
    """The event that is made of a group's events, or its only one: their `values`, or number."""
    if isinstance(group, Gathered):
        return group.join()
    group.value = [group.value] if values else 1
    return group


def _counting(origin: Origin) -> BaseSourceStage | None:
    """`origin`, if it only counts its events as they end."""
    # Its element type is unknown here.
    return origin if isinstance(origin, BaseSourceStage) and origin.only_counts else None
