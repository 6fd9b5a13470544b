"""The arrows between the stages of a run, and how many events went over each."""

from __future__ import annotations

from typing import Any

from penstock.streams.protocol.event import Event
from penstock.streams.protocol.stage import Subscriber
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.observing import Statistics

__all__ = ["GOLDEN", "Arrow", "Arrows"]

GOLDEN = 0.6180339887498949
"""The golden ratio: the fractional parts of its multiples are spread evenly over any period
(H. Weyl, "Über die Gleichverteilung von Zahlen mod. Eins", 1916). By these, some of the events on
an arrow are chosen."""

# Arrows that are kept: of one stage, which may be read again any number of times; and of a shared
# stage, which may have this many readers at once.
_READINGS, _READERS = 16, 1024


class Arrow:
    """Counts the events of one stage on their way to the next."""

    __slots__ = ("_on_events", "count", "on_completed", "on_error", "on_subscribe")

    def __init__(self, below: Subscriber[Any]) -> None:
        self.count = 0
        self._on_events = below.on_events
        self.on_subscribe = below.on_subscribe
        self.on_error = below.on_error
        self.on_completed = below.on_completed

    def on_events(self, events: list[Event[Any]], /) -> None:
        self.count += len(events)
        self._on_events(events)


class _Past:
    """The counts of arrows whose streams have ended."""

    __slots__ = ("count",)

    def __init__(self, count: int) -> None:
        self.count = count


class Arrows:
    """Counts what each stage of a run has sent, and to which stage.

    Time: O(1) for each list of events. Memory: a number for each arrow of the picture, and for each
    of the last readings of a stream that is read again.
    """

    counts = True

    def __init__(self) -> None:
        # Of the stages that were known before, by their numbers, and by those of the stages that
        # read them (0: the sinks). A stage that is connected again, as by retry, has one more.
        self._arrows: dict[int, dict[int, list[Arrow | _Past]]] = {}
        # The counts of the stage that was attached last.
        self._newest: list[Arrow | _Past] = []

    def arrow(
        self, info: StageInfo, below: Subscriber[Any], reader: StageInfo | None, *, is_own: bool
    ) -> Subscriber[Any]:
        """The subscriber to put between the stage `info` and the one `below` it."""
        if info.within is not None:
            return below
        return self.add(info, Arrow(below), reader, is_own=is_own)

    def add(
        self, info: StageInfo, arrow: Arrow, reader: StageInfo | None, *, is_own: bool
    ) -> Arrow:
        """Count what goes over an arrow from `info` to `reader`, or to the sinks for None."""
        # The others have no numbers of their own.
        self._newest = []
        if is_own:
            to = 0 if reader is None else reader.number
            self._newest = self._arrows.setdefault(info.number, {}).setdefault(to, [])
        self._newest.append(arrow)
        if len(self._newest) > (_READINGS if info.shared is None else _READERS):
            # The streams of the first two have ended.
            first, second = self._newest[:2]
            self._newest[:2] = [_Past(first.count + second.count)]
        return arrow

    def counted_statistics(
        self, info: StageInfo, statistics: Statistics, *, is_own: bool
    ) -> Statistics:
        """The statistics of a stage, with what it has `sent`, and `sent_to` each stage that reads
        it if there are several."""
        arrows = self._arrows.get(info.number) if is_own else {0: self._newest}
        if arrows is None:
            return statistics

        def counted() -> dict[str, Any]:
            to = _counts(arrows)
            shared = {"sent_to": to} if len(to) > 1 else {}
            return {**statistics(), "sent": sum(to.values()), **shared}

        return counted

    def sent(self) -> dict[int, dict[int, int]]:
        """How many events went over each arrow, by the numbers of sender and reader."""
        return {number: _counts(arrows) for number, arrows in self._arrows.items()}


def _counts(arrows: dict[int, list[Arrow | _Past]]) -> dict[int, int]:
    """How many events went to each stage, by its number."""
    return {to: sum(arrow.count for arrow in those) for to, those in arrows.items()}
