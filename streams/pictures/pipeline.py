"""A pipeline as an SVG picture: each stream from top to bottom, streams and sinks side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise

from penstock.streams.base.errors import counted
from penstock.streams.pictures.lanes import Arrow, Layout, layout
from penstock.streams.pictures.svg import FONT, document, text
from penstock.streams.protocol.numbering import all_stages, with_above
from penstock.streams.protocol.stage_info import StageInfo

__all__ = [
    "as_svg",
    "bound_text",
    "drawn",
    "feeders_drawn",
    "reads_text",
    "total_text",
]

# All in pixels. Text is not measured; this is the width of a letter relative to its size.
_LETTER = 0.58
_WIDTH, _HEIGHT, _GAP, _MARGIN = 320, 58, 34, 24
_NAME, _SMALL = 15, 12
# Between two lanes.
_BESIDE = 44
# From a row down to the first track of arrows that go to the side, to the next track, to the row
# below.
_LEAD, _TRACK, _TIP = 32, 14, 30
# Of a part within a stage, of the feeders among them, and between two rows of parts.
_PART, _FEEDER, _ROW, _BETWEEN = 96, 70, 24, 20

_STYLE = (
    FONT
    + """
    .sheet { fill: #ffffff; }
    .stage { fill: #f4f8fb; stroke: #9db8cc; }
    .ends { fill: #eef6ef; stroke: #9cc3a3; }
    .number { fill: #6b8499; font-size: 12px; }
    .name { fill: #14344c; font-size: 15px; font-weight: 600; }
    .detail, .note { fill: #52697a; font-size: 12px; }
    .bound { fill: #0f5c8c; font-size: 12px; font-weight: 600; }
    .badge { fill: #d9ebf7; }
    .flow { fill: #14344c; font-size: 12px; }
    .total { fill: #14344c; font-size: 13px; }
    .pipe { stroke: #6ba3c7; stroke-width: 3; fill: none; }
    .arrow { fill: #6ba3c7; }
    @media screen and (prefers-color-scheme: dark) {
      .sheet { fill: #10181f; }
      .stage { fill: #182530; stroke: #3d5a70; }
      .ends { fill: #182820; stroke: #3f6a4b; }
      .name, .flow, .total { fill: #e4eef5; }
      .number, .detail, .note { fill: #9fb4c3; }
      .bound { fill: #9fd3f5; }
      .badge { fill: #1f3f55; }
    }
"""
)


# Of the parts within a stage.
_PARTS = """
    .part { fill: #ffffff; stroke: #9db8cc; }
    .part-name { fill: #52697a; font-size: 10px; }
    .thread { stroke: #6ba3c7; stroke-width: 1.5; fill: none; }
    @media screen and (prefers-color-scheme: dark) {
      .part { fill: #10181f; stroke: #3d5a70; }
      .part-name { fill: #9fb4c3; }
    }
"""


def as_svg(
    column: list[StageInfo],
    sinks: list[StageInfo],
    label: str,
    sent: Mapping[tuple[int, int], str] | None = None,
    note: str = "",
) -> str:
    """An SVG document, readable on light and dark backgrounds; `column` begins with the source.

    Without sinks it is the picture of a stream. `label` is for screen readers. `sent` is what to
    write at the arrow from one stage to another, by their numbers. `note` is a line below the
    total.
    """
    sent = sent or {}
    stages = column + sinks
    row = len(sinks) * _WIDTH + (len(sinks) - 1) * _MARGIN
    total = total_text(stages)
    drawing = _Drawing(layout(column), sent)
    # Distances from the middle of the first lane.
    below = max(_text_width(line, _SMALL + 1) for line in (total, note))
    left_half = max(row, _WIDTH, below) / 2 + _MARGIN
    right_half = max(left_half, drawing.right + _MARGIN if drawing.right > _WIDTH / 2 else 0)
    middle, width = left_half, left_half + right_half
    parts = drawing.parts(middle)
    bottom = drawing.bottom + _GAP
    for at, sink in enumerate(sinks):
        left = middle - row / 2 + at * (_WIDTH + _MARGIN)
        parts.append(_pipe(middle, bottom - _GAP, left + _WIDTH / 2, bottom))
        parts.append(_box(sink, left, bottom, "ends"))
    # Each sink receives the same.
    if sinks and (flow := sent.get((column[-1].number, sinks[0].number), "")):
        # An even number of arrows leaves the middle to it.
        is_free = len(sinks) % 2 == 0
        parts.append(
            text("flow", middle, bottom - 3, flow, "middle")
            if is_free
            else _flow(flow, middle, bottom - _GAP)
        )
    height = (bottom + _HEIGHT if sinks else bottom - _GAP) + 2 * _MARGIN + 10
    has_parts = any(stage.picture.feeders for stage in all_stages(column))
    style = _STYLE + (_PARTS if has_parts else "")
    parts.append(text("total", middle, height - _MARGIN, total, "middle"))
    if note:
        height += _ROW
        parts.append(text("total", middle, height - _MARGIN, note, "middle"))
    return document(width, height, label, style, parts)


class _Drawing:
    """The boxes of a layout and the arrows between them.

    Between two rows there is room for the tracks of arrows that go to the side, and above them for
    what is written at those that begin there.
    """

    def __init__(self, laid: Layout, sent: Mapping[tuple[int, int], str]) -> None:
        self._laid = laid
        self._sent = sent
        # From the middle of the first lane to that of each, and to the right edge.
        self._middles: list[float] = []
        self.right = -_BESIDE - _WIDTH / 2
        for lane in range(laid.lanes):
            self._middles.append(self.right + _BESIDE + _WIDTH / 2 if lane else 0.0)
            places = (place for place in laid.places.values() if place.lane == lane)
            lines = (line for place in places for line in _lines(place.stage))
            notes = max((_text_width(line, _SMALL) for line in lines), default=0)
            self.right = self._middles[-1] + _WIDTH / 2 + (16 + notes if notes else 0)
        # The top and the end of each row.
        self._rows: list[tuple[float, float]] = []
        top: float = _MARGIN
        for row, tracks in enumerate(laid.tracks):
            stages = [place.stage for place in laid.places.values() if place.row == row]
            self._rows.append((top, top + max(map(_height, stages))))
            top = self._rows[-1][1] + (_LEAD + _TRACK * (tracks - 1) + _TIP if tracks else _GAP)
        self.bottom = self._rows[-1][1]

    def parts(self, middle: float) -> list[str]:
        """The elements, with the middle of the first lane at this place."""
        parts: list[str] = []
        for arrow in self._laid.arrows:
            parts += self._arrow(arrow, middle)
        for place in self._laid.places.values():
            stage, (top, _) = place.stage, self._rows[place.row]
            x = middle + self._middles[place.lane]
            kind = "ends" if stage.is_source or stage.number == 1 else "stage"
            parts.append(_box(stage, x - _WIDTH / 2, top, kind))
            parts += _note(_lines(stage), x + _WIDTH / 2 + 16, top)
        return parts

    def _arrow(self, arrow: Arrow, middle: float) -> list[str]:
        points = [(middle + x, y) for x, y in self._points(arrow)]
        parts = [_bent(points)]
        if flow := self._sent.get((arrow.above, arrow.below)):
            x, y = self._beside(arrow, points)
            parts.append(text("flow", x + 12, y, flow))
        return parts

    def _points(self, arrow: Arrow) -> list[tuple[float, float]]:
        above, below = self._laid.places[arrow.above], self._laid.places[arrow.below]
        x = self._middles[above.lane] + _WIDTH * arrow.leaves / 100
        to_x = self._middles[below.lane] + _WIDTH * arrow.comes / 100
        ways = [(x, to_x)]
        if len(arrow.bends) == 2:
            ways = [(x, self._middles[arrow.lane]), (self._middles[arrow.lane], to_x)]
        points = [(x, self._rows[above.row][0] + _height(above.stage))]
        for bend, (begin, end) in zip(arrow.bends, ways, strict=False):
            y = self._rows[bend.row][1] + _LEAD + _TRACK * bend.track
            points += [(begin, y), (end, y)]
        return [*points, (to_x, self._rows[below.row][0])]

    def _beside(self, arrow: Arrow, points: list[tuple[float, float]]) -> tuple[float, float]:
        """Where to write the total of an arrow: where no other arrow goes down beside it."""
        (x, y), last = points[0], points[-1]
        if not arrow.leaves:
            return x, y + _GAP / 2 + 4
        if len(arrow.bends) == 1:
            return last[0], last[1] - 12
        return points[2][0], points[2][1] + _GAP / 2


def _bent(points: list[tuple[float, float]]) -> str:
    """An arrow through these points, with round corners, down into the last one."""
    (x, y), (to_x, to_y) = points[0], points[-1]
    tip = to_y - 8
    path = [f"M{x:g} {y:g}"]
    corners = [*points[1:-1], (to_x, tip)]
    for (x, y), (next_x, next_y) in pairwise(corners):
        before_x, before_y = points[corners.index((x, y))]
        r = min(8.0, max(abs(x - before_x), abs(y - before_y)) / 2)
        r = min(r, max(abs(x - next_x), abs(y - next_y)) / 2)
        begin = _towards((x, y), (before_x, before_y), r)
        end = _towards((x, y), (next_x, next_y), r)
        path.append(f"L{begin[0]:g} {begin[1]:g}Q{x:g} {y:g} {end[0]:g} {end[1]:g}")
    path.append(f"V{tip:g}")
    head = f"M{to_x - 6:g} {tip - 1:g}H{to_x + 6:g}L{to_x:g} {to_y - 1:g}Z"
    return f'<path class="pipe" d="{"".join(path)}"/><path class="arrow" d="{head}"/>'


def _towards(
    point: tuple[float, float], other: tuple[float, float], r: float
) -> tuple[float, float]:
    """The place on the way from a point to another, straight above or beside it, at distance r."""
    (x, y), (to_x, to_y) = point, other
    length = abs(to_x - x) + abs(to_y - y) or 1.0
    return x + (to_x - x) * r / length, y + (to_y - y) * r / length


def _height(stage: StageInfo) -> float:
    return _HEIGHT + (0 if stage.picture.feeders is None else 3 * _ROW + 2 * _BETWEEN + 14)


def _box(stage: StageInfo, left: float, top: float, kind: str) -> str:
    middle = top + (24 if stage.detail else _HEIGHT / 2 + 5)
    parts = [
        f'<rect class="{kind}" x="{left:g}" y="{top:g}" width="{_WIDTH}" '
        f'height="{_height(stage):g}" rx="10"/>',
        text("number", left + 16, middle, str(stage.number)),
    ]
    bound = bound_text(stage)
    badge = _text_width(bound, _SMALL) + 16 if bound else 0
    room = _WIDTH - 38 - 14
    parts.append(text("name", left + 38, middle, _shortened(stage.name, _NAME, room - badge)))
    if stage.detail:
        detail = _shortened(stage.detail, _SMALL, room)
        parts.append(text("detail", left + 38, top + 43, detail))
    if bound:
        right = left + _WIDTH - 12
        parts.append(
            f'<rect class="badge" x="{right - badge:g}" y="{middle - 15:g}" width="{badge:g}" '
            'height="21" rx="10.5"/>'
        )
        parts.append(text("bound", right - badge / 2, middle, bound, "middle"))
    if stage.picture.feeders is not None:
        parts += _feeding(stage.picture.feeders, left + _WIDTH / 2, top + _HEIGHT)
    return "\n  ".join(parts)


def _feeding(feeders: int, middle: float, top: float) -> list[str]:
    """A dispatcher above its feeders, and a spreader below them."""
    names = feeders_drawn(feeders)
    row, last = top + _ROW + _BETWEEN, top + 2 * (_ROW + _BETWEEN)
    first = middle - (len(names) - 1) * (_FEEDER + 6) / 2
    places = [first + at * (_FEEDER + 6) for at in range(len(names))]
    parts = [_part("dispatcher", middle, top, _PART)]
    for name, x in zip(names, places, strict=True):
        parts.append(_thread(middle, top + _ROW, x, row))
        parts.append(_part(name if name == "…" else f"feeder {name}", x, row, _FEEDER))
        parts.append(_thread(x, row + _ROW, middle, last))
    return [*parts, _part("spreader", middle, last, _PART)]


def _part(name: str, middle: float, top: float, width: int) -> str:
    shown = _shortened(name, _SMALL - 2, width)
    return (
        f'<rect class="part" x="{middle - width / 2:g}" y="{top:g}" width="{width}" '
        f'height="{_ROW}" rx="7"/>' + text("part-name", middle, top + 16, shown, "middle")
    )


def _thread(x: float, y: float, to_x: float, to_y: float) -> str:
    half = (y + to_y) / 2
    path = f"M{x:g} {y:g}C{x:g} {half:g} {to_x:g} {half:g} {to_x:g} {to_y:g}"
    return f'<path class="thread" d="{path}"/>'


def _lines(stage: StageInfo) -> list[str]:
    return stage.note.split("; ") if stage.note else []


def _note(lines: list[str], left: float, top: float) -> list[str]:
    first = top + _HEIGHT / 2 + 4 - (len(lines) - 1) * 8
    return [text("note", left, first + 16 * at, line) for at, line in enumerate(lines)]


def _pipe(x: float, y: float, to_x: float, to_y: float) -> str:
    tip = to_y - 8
    if x == to_x:
        path = f"M{x:g} {y:g}V{tip:g}"
    else:
        half = (y + tip) / 2
        path = f"M{x:g} {y:g}C{x:g} {half + 8:g} {to_x:g} {half - 8:g} {to_x:g} {tip:g}"
    head = f"M{to_x - 6:g} {tip - 1:g}H{to_x + 6:g}L{to_x:g} {to_y - 1:g}Z"
    return f'<path class="pipe" d="{path}"/><path class="arrow" d="{head}"/>'


def _flow(sent: str, x: float, top: float) -> str:
    return text("flow", x + 12, top + _GAP / 2 + 4, sent) if sent else ""


def _text_width(shown: str, size: int) -> float:
    return len(shown) * size * _LETTER


def _shortened(shown: str, size: int, room: float) -> str:
    most = int(room / (size * _LETTER))
    return shown if len(shown) <= most else shown[: most - 1] + "…"


_MOST_FEEDERS = 4


def feeders_drawn(feeders: int) -> list[str]:
    """The names of the feeders in a picture, at most four; one may stand for many."""
    if feeders <= _MOST_FEEDERS:
        return [str(n) for n in range(1, feeders + 1)]
    return ["1", "2", "…", f"{feeders:,}"]


def bound_text(stage: StageInfo) -> str:
    """How much a stage may hold, as text; "" for one that passes events on at once."""
    if stage.holds is None:
        return "no bound"
    return "" if stage.holds == 0 else counted(stage.holds, "event")


def drawn(stages: list[StageInfo], sinks: int) -> Iterator[tuple[StageInfo, list[int]]]:
    """All stages in the order in which they are drawn, each with the numbers of those that it
    reads; the last of `stages` are `sinks`, which read the same one."""
    column = stages[: len(stages) - sinks]
    yield from with_above(column)
    for sink in stages[len(column) :]:
        yield sink, [column[-1].number]


def reads_text(above: list[int], before: int) -> str:
    """Which stages a stage reads; nothing if it is the one drawn `before` it, or none."""
    if above in ([], [before]):
        return ""
    *others, last = map(str, above)
    return f"reads {', '.join(others)} and {last}" if others else f"reads {last}"


def total_text(stages: list[StageInfo]) -> str:
    """The most events that the pipeline can hold."""
    stages = list(all_stages(stages))
    bounded = sum(stage.bounded for stage in stages)
    open_ended = [str(stage) for stage in stages if stage.holds is None]
    makers = [str(stage) for stage in stages if stage.delivery.makes]
    made = f", and what the streams made by {' and '.join(makers)} hold" if makers else ""
    if open_ended:
        return (
            f"Holds {counted(bounded, 'event')}{made}, and what {' and '.join(open_ended)} may "
            "hold, for which you set no bound."
        )
    on_disk = sum(stage.on_disk for stage in stages)
    beside = f" in memory and {on_disk:,} on disk" if on_disk else ""
    return f"Holds at most {counted(bounded, 'event')}{beside} at once{made}."
