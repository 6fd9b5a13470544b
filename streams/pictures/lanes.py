"""The layout of a picture: the stages of a pipeline in lanes side by side, and in rows.

The pipeline's own stages are in the first lane, from top to bottom. Each other stream that a stage
reads is in a lane to the right of that stage, and ends in the row above it. Two streams share a
lane only if one ends above the row in which the other begins. A stage is in a row below all stages
that it reads. So an arrow goes down in a lane in which no stage is in its way. It goes to the side
only between two rows, in a track of its own, so that no arrow covers another.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.streams.protocol.numbering import with_above
from penstock.streams.protocol.stage_info import StageInfo

__all__ = ["Arrow", "Bend", "Layout", "Place", "layout"]

# Distances from the middle of a box, in hundredths of its width, like all places within a lane: to
# the first arrow that leaves beside it, and from each to the next; the same of arrows that come;
# and to the last arrow.
_LEAVES, _COMES, _LAST = (34, 6), (16, 9), 46
# The width of a lane: more than any place within it.
_LANE = 1000


@dataclass(frozen=True, slots=True)
class Place:
    """Where a stage stands."""

    stage: StageInfo
    row: int
    lane: int


class Bend(NamedTuple):
    """Where an arrow goes to the side: in a track, counted from the top, below a row."""

    row: int
    track: int


@dataclass(slots=True)
class Arrow:
    """From the stage with the number `above` to the one that reads it; it goes down in `lane`.

    `leaves` and `comes` are how far to the right of the middle of a box it begins and ends, in
    hundredths of the width of a box. Without bends it goes straight down. With one bend it goes
    there from one place to the other. With two, it goes to the middle of its lane, and from there.
    """

    above: int
    below: int
    lane: int
    leaves: int = 0
    comes: int = 0
    bends: tuple[Bend, ...] = ()


@dataclass(frozen=True, slots=True)
class Layout:
    """The places by the numbers of the stages, in the order of these numbers, and the arrows.

    `tracks` is the number of tracks below each row.
    """

    places: dict[int, Place]
    arrows: list[Arrow]
    lanes: int
    tracks: list[int]


@dataclass(slots=True)
class _Branch:
    """A stream: its stages that are in no other branch, the stage of another branch that it reads
    (None: it begins with a source), the stage that reads it, and the streams its stages read."""

    stages: list[StageInfo]
    above: int | None
    reader: int | None
    inputs: dict[int, list[_Branch]] = field(default_factory=dict[int, "list[_Branch]"])


def layout(column: Sequence[StageInfo]) -> Layout:
    """The layout of stages that read each other in their order, source first."""
    stages = list(with_above(column))
    readers: dict[int, list[int]] = {stage.number: [] for stage, _ in stages}
    rows: dict[int, int] = {}
    for stage, above in stages:
        rows[stage.number] = max((rows[one] + 1 for one in above), default=0)
        for one in above:
            readers[one].append(stage.number)
    own = {stage.number for stage in column}
    # Beside the stages that read them, and not at the top.
    for stage, _ in reversed(stages):
        if stage.number not in own:
            rows[stage.number] = min(rows[one] for one in readers[stage.number]) - 1
    lanes = _Lanes(rows)
    lanes.put(_branch(column, None, set()), 0)
    places = {
        stage.number: Place(stage, rows[stage.number], lanes.of[stage.number])
        for stage, _ in stages
    }
    _spread(places, lanes.arrows)
    tracks = _turn(places, lanes.arrows, max(rows.values()) + 1)
    return Layout(places, lanes.arrows, len(lanes.taken), tracks)


def _branch(column: Sequence[StageInfo], reader: int | None, seen: set[int]) -> _Branch:
    stages = [stage for stage in column if stage.number not in seen]
    begin = len(column) - len(stages)
    branch = _Branch(stages, column[begin - 1].number if begin else None, reader)
    for stage in stages:
        seen.add(stage.number)
        branch.inputs[stage.number] = [_branch(one, stage.number, seen) for one in stage.inputs]
    return branch


class _Lanes:
    """Gives each stream the first lane, right of its reader's, in which nothing is in its way."""

    def __init__(self, rows: dict[int, int]) -> None:
        self.rows = rows
        self.of: dict[int, int] = {}
        self.taken: list[list[range]] = []
        self.arrows: list[Arrow] = []

    def put(self, branch: _Branch, least: int) -> None:
        """Give the stream and those that its stages read a lane, which is not before `least`."""
        lane = self._free(self._rows_of(branch), least)
        before = branch.above
        for stage in branch.stages:
            self.of[stage.number] = lane
            if before is not None:
                self.arrows.append(Arrow(before, stage.number, lane))
            for one in branch.inputs[stage.number]:
                self.put(one, lane + 1)
            before = stage.number
        if branch.reader is not None and before is not None:
            self.arrows.append(Arrow(before, branch.reader, lane))

    def _rows_of(self, branch: _Branch) -> range:
        """The rows between what the stream reads and what reads it."""
        first = self.rows[branch.stages[0].number] if branch.above is None else 0
        if branch.above is not None:
            first = self.rows[branch.above] + 1
        if branch.reader is None:
            return range(first, max(self.rows.values()) + 1)
        return range(first, self.rows[branch.reader])

    def _free(self, rows: range, least: int) -> int:
        lane = next(self._where(rows, least))
        while len(self.taken) <= lane:
            self.taken.append([])
        self.taken[lane].append(rows)
        return lane

    def _where(self, rows: range, least: int) -> Iterator[int]:
        for lane in range(least, len(self.taken)):
            if all(rows.stop <= one.start or one.stop <= rows.start for one in self.taken[lane]):
                yield lane
        yield max(least, len(self.taken))


def _spread(places: dict[int, Place], arrows: list[Arrow]) -> None:
    """Choose where arrows leave and come. In the middle is the one that keeps to the lane."""
    for number, place in places.items():
        leaving = _aside(place, [one for one in arrows if one.above == number])
        for at, arrow in enumerate(leaving):
            side = -1 if arrow.lane < place.lane else 1
            arrow.leaves = side * _place(at, len(leaving), *_LEAVES)
        coming = _aside(place, [one for one in arrows if one.below == number])
        for at, arrow in enumerate(coming):
            arrow.comes = _place(at, len(coming), *_COMES)


def _aside(place: Place, arrows: list[Arrow]) -> list[Arrow]:
    """From left to right, those that are not in the middle of the box."""
    straight = next((one for one in arrows if one.lane == place.lane), None)
    return sorted((one for one in arrows if one is not straight), key=lambda one: one.lane)


def _place(at: int, count: int, first: int, step: int) -> int:
    """Where the arrow at this place is, of so many."""
    most = (_LAST - first) / max(1, count - 1)
    return first + round(at * min(step, most))


def _turn(places: dict[int, Place], arrows: list[Arrow], rows: int) -> list[int]:
    """Choose the tracks in which arrows go to the side; returns how many there are in each row."""
    aside: list[list[tuple[Arrow, int, int]]] = [[] for _ in range(rows)]
    for arrow in arrows:
        above, below = places[arrow.above], places[arrow.below]
        leaves, comes = above.lane * _LANE + arrow.leaves, below.lane * _LANE + arrow.comes
        lane = comes if below.row == above.row + 1 else arrow.lane * _LANE
        for row, x, to_x in ((above.row, leaves, lane), (below.row - 1, lane, comes)):
            if x != to_x:
                aside[row].append((arrow, min(x, to_x), max(x, to_x)))
    counts: list[int] = []
    for row, sides in enumerate(aside):
        # Those that part go outside in from above, those that join inside out: none crosses then.
        parting = [one for one in sides if one[0].leaves and places[one[0].above].row == row]
        joining = [one for one in sides if one not in parting]
        parting.sort(key=lambda one: -one[0].lane)
        joining.sort(key=lambda one: one[0].lane)
        taken: list[tuple[int, int, int]] = []
        for arrow, x, to_x in (*parting, *joining):
            over = [track for track, left, right in taken if x <= right and left <= to_x]
            track = max(over, default=-1) + 1
            arrow.bends = (*arrow.bends, Bend(row, track))
            taken.append((track, x, to_x))
        counts.append(max((track + 1 for track, _, _ in taken), default=0))
    return counts
