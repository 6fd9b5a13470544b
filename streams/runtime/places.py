"""The numbers of stages in a run, with those that are made while it runs.

A stage that was not known before, as the streams of `publish(mapper)` have, gets the lowest number
that no other stage of the running has now. Those come after the numbers of the sinks.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush

from penstock.streams.protocol.stage_info import StageInfo

__all__ = ["LateNumbers", "Places"]


class LateNumbers:
    """Numbers for the stages of one run that were not known before."""

    __slots__ = ("_free", "_next")

    def __init__(self) -> None:
        self._next = 1
        self._free: list[int] = []

    def begin_after(self, last: int) -> None:
        """The stages that were known before have the numbers up to `last`."""
        self._next = last + 1

    def take(self) -> int:
        """The lowest number that is free."""
        if self._free:
            return heappop(self._free)
        self._next += 1
        return self._next - 1

    def free(self, number: int) -> None:
        """The stage of this number has gone."""
        heappush(self._free, number)


class Places:
    """The places of the stages of one stream, by the `id` of their descriptions.

    The places of an `outer` stream that it is read for are known here too. Memory: an entry for
    each stage, until the stream is left.
    """

    __slots__ = ("_known", "_late", "_numbers", "_outer", "_own", "_readers")

    def __init__(
        self,
        numbers: LateNumbers,
        chain: Iterable[StageInfo] = (),
        numbered: Iterable[StageInfo] = (),
        outer: Places | None = None,
    ) -> None:
        self._numbers = numbers
        self._known = {id(info): place for info, place in zip(chain, numbered, strict=True)}
        self._own = frozenset(map(id, self._known.values()))
        self._outer = outer
        # Stages that were not known before, with what they are in the pipeline. The descriptions
        # are kept, so that no other has the `id` of one.
        self._late: dict[int, tuple[StageInfo, StageInfo]] = {}
        # For which stage each of them is read, by their numbers.
        self._readers: dict[int, int | None] = {}

    def inner(self) -> Places:
        """The places of a stream that is read as a part of this one."""
        return Places(self._numbers, outer=self)

    def is_own(self, place: StageInfo) -> bool:
        """Whether a stage was known before the pipeline ran."""
        return id(place) in self._own or (self._outer is not None and self._outer.is_own(place))

    def find(self, info: StageInfo) -> StageInfo | None:
        """The place of a stage, if it has one."""
        place = self._known.get(id(info))
        if place is not None or id(info) in self._own:
            return place or info
        late = self._late.get(id(info))
        if late is not None:
            return late[1]
        return None if self._outer is None else self._outer.find(info)

    def note(self, info: StageInfo, place: StageInfo) -> None:
        """This stage has the place of one that is known."""
        self._late[id(info)] = info, place

    def add(self, info: StageInfo, read_by: int | None) -> StageInfo:
        """Give a stage that was not known a number; it is read for the stage `read_by`."""
        place = info.at(self._numbers.take())
        self.note(info, place)
        self.note(place, place)
        self._readers[place.number] = read_by
        return place

    def reader_of(self, place: StageInfo) -> int | None:
        """The number of the stage, known before, for which a stage is read."""
        if place.number in self._readers:
            return self._readers[place.number]
        return None if self._outer is None else self._outer.reader_of(place)

    def free(self) -> None:
        """The stream has been left."""
        for number in self._readers:
            self._numbers.free(number)
        self._readers.clear()
