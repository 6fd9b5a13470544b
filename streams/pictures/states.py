"""The layout of a drawn automaton: places of its states, and of the labels of its arcs.

States are in rows by their distance from the first. The label of an arc is in its middle, or as
near to it as it covers neither a state nor another label.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

__all__ = ["KEY_GAP", "LINE", "RADIUS", "Arc", "Graph", "Layout", "Point", "bend", "laid_out"]

# All in pixels, including the approximate width of a letter in a label.
RADIUS, LINE, KEY_GAP = 20, 14, 8
_LETTER, _ROW, _COLUMN, _MARGIN = 6.6, 120, 190, 60
# From the centre of a state to the label of its loop, around any label, and the height between two
# rows of states that a line of a label needs there.
_LOOP, _GAP, _ROOM = RADIUS + 36, 4, 30
# Of the way along an arc: the places of its label, the middle first.
_ALONG = (0.5, *(0.5 + sign * step / 100 for step in range(3, 34, 3) for sign in (-1, 1)))

Point = tuple[float, float]


class Arc(NamedTuple):
    source: int
    target: int
    label: str
    looks: str = ""


class Graph(NamedTuple):
    states: list[str]
    initial: tuple[int, ...]
    arcs: list[Arc]


class Layout(NamedTuple):
    """The centre of each state, and the middle of each label, at the height of a text's line."""

    places: list[Point]
    labels: list[Point]
    width: float
    height: float


class _Box(NamedTuple):
    left: float
    top: float
    right: float
    bottom: float

    def overlap(self, other: _Box) -> float:
        """The area that both cover."""
        across = min(self.right, other.right) - max(self.left, other.left)
        down = min(self.bottom, other.bottom) - max(self.top, other.top)
        return across * down if across > 0 and down > 0 else 0.0


def laid_out(graph: Graph, top: float = 0.0, beside: Mapping[int, Sequence[str]] = {}) -> Layout:
    """The layout of a graph below `top`. `beside` are the lines of text to the left of states."""
    labels = [_size(arc.label) for arc in graph.arcs]
    loops = [wide for arc, (wide, _) in zip(graph.arcs, labels, strict=True) if _is_loop(arc)]
    names = max((len(name) for some in beside.values() for name in some), default=0) * _LETTER
    places = _places(graph, max(_COLUMN, _LOOP + RADIUS + names + max(loops, default=0.0)), top)
    taken = [_of_state(place, beside.get(at, ())) for at, place in enumerate(places)]
    middles = [(0.0, 0.0)] * len(labels)
    # Those of loops first, which have one place.
    for number in sorted(range(len(labels)), key=lambda at: not _is_loop(graph.arcs[at])):
        arc, size = graph.arcs[number], labels[number]
        # Of equal ones the first, which is the nearest to the middle.
        middles[number] = min(
            _candidates(arc, places, size),
            key=lambda at: sum(_of_label(at, size).overlap(one) for one in taken),
        )
        taken.append(_of_label(middles[number], size))
    # Nothing is cut off on the left.
    right = max(0.0, _MARGIN / 4 - min(box.left for box in taken))
    return Layout(
        [(x + right, y) for x, y in places],
        [(x + right, y) for x, y in middles],
        max(box.right for box in taken) + right + _MARGIN / 2,
        max(max(box.bottom for box in taken) + _MARGIN / 2, max(y for _, y in places) + _MARGIN),
    )


def bend(arc: Arc, places: Sequence[Point]) -> Point:
    """The control point of the curve between two states."""
    (x, y), (to_x, to_y) = places[arc.source], places[arc.target]
    # To the left of its direction, so that arcs in opposite directions do not overlap.
    return (x + to_x) / 2 + (y - to_y) / 4, (y + to_y) / 2 + (to_x - x) / 4


def _is_loop(arc: Arc) -> bool:
    return arc.source == arc.target


def _places(graph: Graph, column: float, top: float) -> list[Point]:
    """The centres of the states: columns so far apart, and rows so far that labels fit between."""
    rows: dict[int, int] = dict.fromkeys(graph.initial, 0)
    queue = list(rows)
    for state in queue:
        for arc in graph.arcs:
            if arc.source == state and arc.target not in rows:
                rows[arc.target] = rows[state] + 1
                queue.append(arc.target)
    lines = sum(arc.label.count("\n") + 1 for arc in graph.arcs if not _is_loop(arc))
    height = max(_ROW, _ROOM * lines / max(1, *rows.values()))
    taken: dict[int, int] = {}
    places: list[Point] = []
    for state in range(len(graph.states)):
        row = rows.get(state, 0)
        at = taken.get(row, 0)
        taken[row] = at + 1
        # Every other row is shifted, so that no arc runs through a state between its ends.
        places.append((_MARGIN + (at + row % 2 / 2) * column, _MARGIN + top + row * height))
    return places


def _candidates(arc: Arc, places: Sequence[Point], size: tuple[float, float]) -> Iterator[Point]:
    x, y = places[arc.source]
    if _is_loop(arc):
        yield x + _LOOP + size[0] / 2, y + 4
        return
    (bend_x, bend_y), (to_x, to_y) = bend(arc, places), places[arc.target]
    for along in _ALONG:
        begin, middle, end = (1 - along) ** 2, 2 * along * (1 - along), along**2
        yield begin * x + middle * bend_x + end * to_x, begin * y + middle * bend_y + end * to_y


def _size(label: str) -> tuple[float, float]:
    lines = label.split("\n")
    return max(map(len, lines)) * _LETTER, len(lines) * LINE


def _of_label(middle: Point, size: tuple[float, float]) -> _Box:
    (x, y), (width, height) = middle, size
    # A line is written upwards from its place.
    return _Box(x - width / 2 - _GAP, y - 4 - height / 2, x + width / 2 + _GAP, y - 4 + height / 2)


def _of_state(place: Point, beside: Sequence[str]) -> _Box:
    x, y = place
    names = max(map(len, beside), default=0) * _LETTER
    left = x - RADIUS - (KEY_GAP + names if beside else 0)
    return _Box(left, y - RADIUS, x + RADIUS, max(y + RADIUS, y + 4 + LINE * len(beside)))
