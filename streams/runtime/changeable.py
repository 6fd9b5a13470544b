"""The stages of a run that can be changed while it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from penstock.streams.base.errors import BuildError

__all__ = ["Changeable"]

Place = int | str
"""The number of a stage; of one that has none of its own, with what it is inside."""


class Changeable:
    """The stages that `call`, a method of the running, can change; errors name them by `kind`."""

    def __init__(self, call: str, kind: str) -> None:
        self._call = call
        self._kind = kind
        self.stages: dict[Place, Callable[..., None]] = {}
        """The function that changes a stage, for each that has begun."""
        # The changes to stages that had not begun, in order.
        self._wanted: dict[Place, list[tuple[Any, ...]]] = {}

    def add(self, place: Place, change: Callable[..., None]) -> Callable[[], None] | None:
        """Include a stage that begins. Returns what is to be done when it has, if it was to be
        changed before."""
        self.stages[place] = change
        return partial(self._catch_up, place) if place in self._wanted else None

    def _catch_up(self, place: Place) -> None:
        for values in self._wanted.pop(place, ()):
            self.stages[place](*values)

    def chosen(self, stage: int | None, later: Iterable[Place]) -> Place:
        """The place of the stage with this number; None is the only stage, if there is one only.

        `later` are the numbers of those that begin at some time. Raises BuildError, which names the
        stages, if it is none of them.
        """
        places = sorted({*self.stages, *later}, key=lambda place: (isinstance(place, str), place))
        place = places[0] if stage is None and len(places) == 1 else stage
        if place is None or place not in places:
            numbers = ", ".join(map(str, places)) or "none"
            raise BuildError(f"{self._call}(stage={stage}): {self._kind} are: {numbers}")
        return place

    def change(self, place: Place, *values: Any) -> None:
        """Give these values to a stage, now or when it has begun."""
        if place in self.stages and place not in self._wanted:
            self.stages[place](*values)
        else:
            self._wanted.setdefault(place, []).append(values)
