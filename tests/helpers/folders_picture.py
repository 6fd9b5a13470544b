"""Draws the folders, the imports of each, and the path of one event through them, as an SVG.

    make pictures ARGS=folders

writes `docs/images/folders.svg`. The imports are read from the code, the exceptions from the test
of the layers; only the position of each folder on the sheet is written here. `<title>` has all the
imports of a folder, which browsers show when the pointer rests on it and screen readers read.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from pathlib import Path

from tests.contract.test_layers import EXCEPTIONS, ORDER, arrows

__all__ = ["IMAGE", "picture"]

HOME = Path(__file__).parents[2]
IMAGE = HOME / "docs/images/folders.svg"

# Lowest first: a folder imports from the rows below it, and from what EXCEPTIONS lists.
ROWS: list[tuple[str | None, str | None, str | None]] = [
    ("pages", "errors", "clock"),
    ("extras", "protocol", "validation"),
    ("ahead", None, "base"),
    ("failures", "diagnostics", "limits"),
    ("temporal", "runtime", None),
    ("delivery", "boundary", "pictures"),
    (None, "keyed", None),
    ("io", "execution", None),
    ("sql_queue", "rx", "workers"),
    (None, "telemetry", None),
    (None, "pipeline", None),
    (None, "flowable", "monitoring"),
    (None, "running", "testing"),
    ("nats", None, "streams"),
    ("work_pulling", "kafka", None),
    ("sources", "operators", "sinks"),
    (None, "penstock", None),
]

# The steps of the page's walk that happen in a folder.
STEPS = {
    "sources": "1",
    "io": "1",
    "operators": "2",
    "keyed": "3, 4",
    "execution": "5",
    "limits": "5",
    "failures": "5",
    "sinks": "6",
    "runtime": "6",
    "protocol": "7",
}

# All in pixels. Text is not measured; this is the width of a letter relative to its size.
_LETTER = 0.58
_WIDTH, _HEIGHT, _PITCH, _GUTTER, _MARGIN = 268, 40, 60, 104, 24
_LANE, _LANES = 10, 7  # between two arrows in a gutter; how many have room beside the event's path
_SMALL = 11
_SHEET = 2 * _MARGIN + 3 * _WIDTH + 2 * _GUTTER
_LEGEND = 78
_BOTTOM = _MARGIN + len(ROWS) * _PITCH

_STYLE = """
    text { font-family: ui-sans-serif, system-ui, "Segoe UI", Helvetica, Arial, sans-serif; }
    .sheet { fill: #ffffff; }
    .folder { fill: #f4f8fb; stroke: #9db8cc; }
    .passed { fill: #dcecf7; stroke: #4f8db5; }
    .name { fill: #14344c; font-size: 14px; font-weight: 600; }
    .below { fill: #52697a; font-size: 11px; }
    .step { fill: #0f5c8c; font-size: 13px; font-weight: 700; }
    .legend { fill: #14344c; font-size: 13px; }
    .event { stroke: #3f86b5; stroke-width: 5; fill: none; stroke-linejoin: round; }
    .eventtip { fill: #3f86b5; }
    .up { stroke: #a5691c; stroke-width: 1.3; fill: none; stroke-dasharray: 5 3; }
    .uptip { fill: #a5691c; }
    @media (prefers-color-scheme: dark) {
      .sheet { fill: #10181f; }
      .folder { fill: #182530; stroke: #3d5a70; }
      .passed { fill: #1b3a50; stroke: #6ba3c7; }
      .name, .legend { fill: #e4eef5; }
      .below { fill: #9fb4c3; }
      .step { fill: #9fd3f5; }
      .event { stroke: #6ba3c7; }
      .eventtip { fill: #6ba3c7; }
      .up { stroke: #dcb877; }
      .uptip { fill: #dcb877; }
    }
"""


@dataclass(frozen=True)
class Box:
    row: int
    column: int
    left: float
    width: float

    @property
    def top(self) -> float:
        return _BOTTOM - (self.row + 1) * _PITCH

    @property
    def bottom(self) -> float:
        return self.top + _HEIGHT

    @property
    def middle(self) -> float:
        return self.left + self.width / 2

    @property
    def right(self) -> float:
        return self.left + self.width


def picture() -> str:
    """The document; AssertionError where a folder has no place, or not above what it imports."""
    boxes = _boxes()
    imports = _imports()
    assert set(boxes) == set(ORDER), f"give a place in ROWS: {set(ORDER) ^ set(boxes)}"
    for folder, others in imports.items():
        for other in others:
            is_above = boxes[folder].row > boxes[other].row
            assert is_above or (folder, other) in EXCEPTIONS, f"{folder} must stand above {other}"
    height = _BOTTOM + _LEGEND
    parts = [
        *_path_of_an_event(boxes),
        *(part for folder, box in boxes.items() for part in _folder(folder, box, imports)),
        *_exceptions(boxes),
        *_legend(),
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_SHEET}" height="{height}" '
        f'viewBox="0 0 {_SHEET} {height}" role="img" aria-labelledby="title">\n'
        '  <title id="title">The folders in the order of their imports, from errors.py at the '
        "bottom to penstock/ at the top, and one event that goes from sources/ through operators/, "
        "keyed/ and execution/ to sinks/</title>\n"
        f"  <style>{_STYLE}  </style>\n"
        f'  <rect class="sheet" width="{_SHEET}" height="{height}" rx="12"/>\n'
        + "".join(f"  {part}\n" for part in parts)
        + "</svg>\n"
    )


def _boxes() -> dict[str, Box]:
    boxes: dict[str, Box] = {}
    for row, folders in enumerate(ROWS):
        for column, folder in enumerate(folders):
            if folder == "penstock":  # over everything
                boxes[folder] = Box(row, column, _MARGIN, _SHEET - 2 * _MARGIN)
            elif folder is not None:
                left = _MARGIN + column * (_WIDTH + _GUTTER)
                boxes[folder] = Box(row, column, left, _WIDTH)
    return boxes


def _imports() -> dict[str, list[str]]:
    """The imports of each folder, the highest first."""
    found = arrows()
    return {folder: [to for to in reversed(ORDER) if (folder, to) in found] for folder in ORDER}


def _below(folder: str, imports: dict[str, list[str]]) -> list[str]:
    """What a folder imports, without the exceptions and without what its other imports reach."""
    direct = {to for to in imports[folder] if (folder, to) not in EXCEPTIONS}
    return [to for to in imports[folder] if to in direct - _reached(direct, imports)]


def _reached(folders: set[str], imports: dict[str, list[str]]) -> set[str]:
    reached: set[str] = set()
    for folder in folders:
        direct = {to for to in imports[folder] if (folder, to) not in EXCEPTIONS}
        reached |= direct | _reached(direct, imports)
    return reached


def _label(folder: str) -> str:
    if folder == "streams":
        return "streams/__init__.py"
    is_file = (HOME / "streams" / f"{folder}.py").exists()
    return f"{folder}.py" if is_file else f"{folder}/"


def _folder(folder: str, box: Box, imports: dict[str, list[str]]) -> list[str]:
    steps = STEPS.get(folder, "")
    name, below = _label(folder), ", ".join(_below(folder, imports))
    assert len(name) * 14 + len(steps) * 13 < box.width / _LETTER - 24, name
    assert (len(below) + 2) * _SMALL < (box.width - 16) / _LETTER, f"too long: {below}"
    every = ", ".join(_label(to) for to in imports[folder]) or "no other folder"
    return [
        f"<g><title>{name} imports {every}</title>",
        f'<rect class="{"passed" if steps else "folder"}" x="{box.left:g}" y="{box.top:g}" '
        f'width="{box.width:g}" height="{_HEIGHT}" rx="8"/>',
        _text("name", box.left + 10, box.top + (17 if below else 25), name),
        *([_text("below", box.left + 10, box.top + 33, f"↓ {below}")] if below else []),
        *([_text("step", box.right - 10, box.top + 17, steps, "end")] if steps else []),
        "</g>",
    ]


def _path_of_an_event(boxes: dict[str, Box]) -> list[str]:
    """Sources, operators, keyed, execution, sinks."""
    source, operators, sink = boxes["sources"], boxes["operators"], boxes["sinks"]
    keyed, execution = boxes["keyed"], boxes["execution"]
    level = operators.top + _HEIGHT / 2
    down, up = operators.left - 22, sink.left - 18  # the lanes beside the middle column
    keyed_level, execution_level = keyed.top + _HEIGHT / 2, execution.top + 10
    return [
        _line("event", f"M{source.right:g} {level:g}H{operators.left - 10:g}"),
        _tip("event", operators.left - 1, level, "right"),
        _line(
            "event",
            f"M{operators.left + 30:g} {operators.bottom:g}v10H{down:g}V{keyed_level:g}"
            f"H{keyed.left - 10:g}",
        ),
        _tip("event", keyed.left - 1, keyed_level, "right"),
        _line("event", f"M{keyed.middle:g} {keyed.top:g}V{execution.bottom + 10:g}"),
        _tip("event", keyed.middle, execution.bottom + 1, "up"),
        _line(
            "event",
            f"M{execution.right:g} {execution_level:g}H{up:g}V{level:g}H{sink.left - 10:g}",
        ),
        _tip("event", sink.left - 1, level, "right"),
    ]


def _exceptions(boxes: dict[str, Box]) -> list[str]:
    """The imports that run up: straight where nothing is between, else along a gutter."""
    taken = {(box.row, box.column) for box in boxes.values()}
    parts: list[str] = []
    # What occupies the lanes of the two gutters: row from, row to.
    gutters: list[list[list[tuple[int, int]]]] = [[], []]
    ports: dict[tuple[str, int], int] = {}
    for folder, other in sorted(
        EXCEPTIONS, key=lambda pair: boxes[pair[1]].row - boxes[pair[0]].row
    ):
        low, high = boxes[folder], boxes[other]
        assert abs(low.column - high.column) < 2, (
            f"{folder} and {other} must be in adjacent columns"
        )
        between = {(row, low.column) for row in range(low.row + 1, high.row)}
        reason = f"<title>{folder} to {other}: {escape(EXCEPTIONS[folder, other])}</title>"
        if low.column == high.column and not between & taken:
            x = low.middle + 40
            parts.append(_line("up", f"M{x:g} {low.top:g}V{high.bottom + 6:g}", reason))
            parts.append(_tip("up", x, high.bottom + 1, "up"))
            continue
        if low.column == high.column:
            gutter = min((1, 0), key=lambda number: len(gutters[number]))
        else:
            gutter = min(low.column, high.column)
        lane = _free_lane(gutters[gutter], low.row, high.row)
        assert lane < _LANES, "too many imports run up to draw them"
        x = _MARGIN + _WIDTH + gutter * (_WIDTH + _GUTTER) + 16 + lane * _LANE
        start, begins = _side(low, gutter), _port(ports, folder, gutter, low)
        end, ends = _side(high, gutter), _port(ports, other, gutter, high)
        to_left = end < x
        stop = end + 6 if to_left else end - 6
        parts.append(_line("up", f"M{start:g} {begins:g}H{x:g}V{ends:g}H{stop:g}", reason))
        tip = end + 1 if to_left else end - 1
        parts.append(_tip("up", tip, ends, "left" if to_left else "right"))
    return parts


def _free_lane(lanes: list[list[tuple[int, int]]], low: int, high: int) -> int:
    for number, lane in enumerate(lanes):
        if all(high < begins or ends < low for begins, ends in lane):
            lane.append((low, high))
            return number
    lanes.append([(low, high)])
    return len(lanes) - 1


def _side(box: Box, gutter: int) -> float:
    return box.right if box.column == gutter else box.left


def _port(ports: dict[tuple[str, int], int], folder: str, gutter: int, box: Box) -> float:
    """A height at the side of a box that no other arrow has."""
    number = ports[folder, gutter] = ports.get((folder, gutter), -1) + 1
    return box.bottom - 5 - number * 7


def _legend() -> list[str]:
    top = _BOTTOM + 8
    return [
        _line("event", f"M{_MARGIN} {top:g}h40"),
        _text(
            "legend", _MARGIN + 52, top + 4, "the path of an event; numbers are steps on the page"
        ),
        _line("up", f"M{_MARGIN} {top + 22:g}h40"),
        _text(
            "legend", _MARGIN + 52, top + 26, "an import that runs up, with its reason in the test"
        ),
        _text("legend", _MARGIN + 8, top + 48, "↓"),
        _text(
            "legend",
            _MARGIN + 52,
            top + 48,
            "imports; what those import themselves is left out",
        ),
    ]


def _line(kind: str, path: str, title: str = "") -> str:
    return (
        f'<path class="{kind}" d="{path}">{title}</path>'
        if title
        else (f'<path class="{kind}" d="{path}"/>')
    )


def _tip(kind: str, x: float, y: float, way: str) -> str:
    long, half = (10, 7) if kind == "event" else (7, 4)
    dx, dy = {"right": (-1, 0), "left": (1, 0), "up": (0, 1)}[way]
    back_x, back_y = x + dx * long, y + dy * long
    corners = [
        (x, y),
        (back_x + dy * half, back_y + dx * half),
        (back_x - dy * half, back_y - dx * half),
    ]
    path = "L".join(f"{a:g} {b:g}" for a, b in corners)
    return f'<path class="{kind}tip" d="M{path}Z"/>'


def _text(kind: str, x: float, y: float, text: str, anchor: str = "start") -> str:
    where = f'x="{x:g}" y="{y:g}"' + ("" if anchor == "start" else f' text-anchor="{anchor}"')
    return f'<text class="{kind}" {where}>{escape(text)}</text>'
