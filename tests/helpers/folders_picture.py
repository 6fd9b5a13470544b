"""Draws the folders, the imports of each, and the path of one event through them, as an SVG.

    make pictures ARGS=folders

writes `docs/images/folders.svg`. The imports are read from the code; only the position of each
folder on the sheet is written here. `<title>` has all the imports of a folder, which browsers show
when the pointer rests on it and screen readers read.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from pathlib import Path

from tests.contract.test_layers import ORDER, arrows

__all__ = ["IMAGE", "picture"]

HOME = Path(__file__).parents[2]
IMAGE = HOME / "docs/images/folders.svg"

# Lowest first: a folder imports from the rows below it.
ROWS: list[tuple[str | None, str | None, str | None]] = [
    (None, "base", None),
    ("temporal", "protocol", "limits"),
    ("pictures", None, "diagnostics"),
    (None, "runtime", None),
    ("nats/client", "stages", None),
    ("boundary", "failures", None),
    ("delivery", "keyed", None),
    ("io", "execution", "recording"),
    ("aggregates", "state", None),
    ("sql_queue", "rx", "running"),
    ("inbox", "event_time", "telemetry"),
    ("windows", "definitions", "workers"),
    ("monitoring", "pipelines", "joins"),
    ("nats", "groups", "kafka"),
    ("work_pulling", None, "testing"),
    (None, None, "streams"),
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
    "running": "6",
    "stages": "7",
}

# All in pixels. Text is not measured; this is the width of a letter relative to its size.
_LETTER = 0.58
_WIDTH, _HEIGHT, _PITCH, _GUTTER, _MARGIN = 320, 40, 60, 104, 24
_SMALL = 11
_SHEET = 2 * _MARGIN + 3 * _WIDTH + 2 * _GUTTER
_LEGEND = 56
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
    @media (prefers-color-scheme: dark) {
      .sheet { fill: #10181f; }
      .folder { fill: #182530; stroke: #3d5a70; }
      .passed { fill: #1b3a50; stroke: #6ba3c7; }
      .name, .legend { fill: #e4eef5; }
      .below { fill: #9fb4c3; }
      .step { fill: #9fd3f5; }
      .event { stroke: #6ba3c7; }
      .eventtip { fill: #6ba3c7; }
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
            assert boxes[folder].row > boxes[other].row, f"{folder} must stand above {other}"
    height = _BOTTOM + _LEGEND
    parts = [
        *_path_of_an_event(boxes),
        *(part for folder, box in boxes.items() for part in _folder(folder, box, imports)),
        *_legend(),
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_SHEET}" height="{height}" '
        f'viewBox="0 0 {_SHEET} {height}" role="img" aria-labelledby="title">\n'
        '  <title id="title">The folders in the order of their imports, from base/ at the '
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
    """What a folder imports, without what its other imports reach."""
    direct = set(imports[folder])
    return [to for to in imports[folder] if to in direct - _reached(direct, imports)]


def _reached(folders: set[str], imports: dict[str, list[str]]) -> set[str]:
    reached: set[str] = set()
    for folder in folders:
        reached |= {*imports[folder], *_reached(set(imports[folder]), imports)}
    return reached


def _label(folder: str) -> str:
    return "streams/__init__.py" if folder == "streams" else f"{folder}/"


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
        _line(f"M{source.right:g} {level:g}H{operators.left - 10:g}"),
        _tip(operators.left - 1, level, "right"),
        _line(
            f"M{operators.left + 30:g} {operators.bottom:g}v10H{down:g}V{keyed_level:g}"
            f"H{keyed.left - 10:g}",
        ),
        _tip(keyed.left - 1, keyed_level, "right"),
        _line(f"M{keyed.middle:g} {keyed.top:g}V{execution.bottom + 10:g}"),
        _tip(keyed.middle, execution.bottom + 1, "up"),
        _line(
            f"M{execution.right:g} {execution_level:g}H{up:g}V{level:g}H{sink.left - 10:g}",
        ),
        _tip(sink.left - 1, level, "right"),
    ]


def _legend() -> list[str]:
    top = _BOTTOM + 8
    return [
        _line(f"M{_MARGIN} {top:g}h40"),
        _text(
            "legend", _MARGIN + 52, top + 4, "the path of an event; numbers are steps on the page"
        ),
        _text("legend", _MARGIN + 8, top + 26, "↓"),
        _text(
            "legend",
            _MARGIN + 52,
            top + 26,
            "imports; what those import themselves is left out",
        ),
    ]


def _line(path: str) -> str:
    return f'<path class="event" d="{path}"/>'


def _tip(x: float, y: float, way: str) -> str:
    long, half = 10, 7
    dx, dy = {"right": (-1, 0), "up": (0, 1)}[way]
    back_x, back_y = x + dx * long, y + dy * long
    corners = [
        (x, y),
        (back_x + dy * half, back_y + dx * half),
        (back_x - dy * half, back_y - dx * half),
    ]
    path = "L".join(f"{a:g} {b:g}" for a, b in corners)
    return f'<path class="eventtip" d="M{path}Z"/>'


def _text(kind: str, x: float, y: float, text: str, anchor: str = "start") -> str:
    where = f'x="{x:g}" y="{y:g}"' + ("" if anchor == "start" else f' text-anchor="{anchor}"')
    return f'<text class="{kind}" {where}>{escape(text)}</text>'
