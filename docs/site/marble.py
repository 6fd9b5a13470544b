"""A marble diagram in ASCII, drawn as SVG.

A row is a label and what happens, one character per tick: `-` nothing, a letter or digit an item,
`(a,b)` items at one tick, `|` the end, `#` an error. Text after two spaces is a remark. Colours
come from the style sheet of the page, so that the picture follows its theme.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import escape

__all__ = ["Row", "draw", "is_marble", "rows_of"]

TICK = 17  # px from one character to the next
LEFT = 14  # px before the first
BESIDE = 22  # px between items of one tick
NAME, LINE = 22, 34  # px in height: of the label, and of the line below it

_ROW = re.compile(r"    (\S.*?)(?:  +)(\S.*)")
_PART = re.compile(
    r"(?P<group>\([^()]*\))|(?P<line>-+)|(?P<gap> +)|(?P<end>\|)|(?P<error>#)"
    r"|(?P<item>(?:\{\}|[A-Za-z]\d|.)(?:\\n)?)"
)


@dataclass(frozen=True)
class Row:
    """A label, its timeline, and the remark beside it; a row of explanations has no timeline."""

    label: str
    line: str
    remark: str


def is_marble(text: str) -> bool:
    """Whether all lines are rows of a diagram, one of which has a timeline."""
    found = [_ROW.fullmatch(line) for line in text.splitlines()]
    return (
        len(found) > 1
        and all(found)
        and any("-" in row[2] or row[2].endswith("|") for row in found if row)
    )


def rows_of(text: str) -> list[Row]:
    """The rows of a diagram, as `help` shows it."""
    rows = []
    for line in text.splitlines():
        found = _ROW.fullmatch(line)
        if found is None:
            raise ValueError(f"not a row of a marble diagram: {line!r}")
        label, rest = found.groups()
        if re.match(r"\w+ = ", rest):
            rows.append(Row(label, "", rest))
            continue
        # Items of a row such as "1 2 3" are apart by one space; a remark is apart by more, or is
        # what follows the end.
        happens, _, remark = rest.partition("  ")
        ended = re.match(r"(.*\|) +(\w.*)", happens)
        if ended:
            happens, remark = ended.groups()
        rows.append(Row(label, happens, remark.strip()))
    return rows


def draw(text: str) -> str:
    """One line of SVG for a diagram."""
    rows = rows_of(text)
    pictures: list[str] = []
    colours: dict[str, int] = {}
    y = 4
    width = 0
    for row in rows:
        pictures.append(_label(row, y))
        remark = row.remark if row.line else ""
        said = row.label + ("    " + remark if remark else "   " + row.remark)
        width = max(width, LEFT + TICK * _ticks(row.line) + LEFT, int(7.4 * len(said)) + 12)
        y += NAME
        if row.line:
            pictures.append(_timeline(row, y + LINE // 2 - 3, colours))
            y += LINE
    described = escape("; ".join(" ".join((r.label, r.line, r.remark)) for r in rows), quote=True)
    return (
        f'<svg class="marble" xmlns="http://www.w3.org/2000/svg" width="{width}" height="{y + 4}" '
        f'viewBox="0 0 {width} {y + 4}" role="img" aria-label="{described}">'
        f"{''.join(pictures)}</svg>"
    )


def _label(row: Row, y: int) -> str:
    gap = 24 if row.line else 16
    remark = f'<tspan class="remark" dx="{gap}">{escape(row.remark)}</tspan>' if row.remark else ""
    return f'<text class="label" x="2" y="{y + 15}">{escape(row.label)}{remark}</text>'


def _ticks(line: str) -> int:
    return sum(_length(part) for part in _PART.finditer(line))


def _length(part: re.Match[str]) -> int:
    """In characters: what stands under it in the next row is at the same time."""
    return len(part[0])


def _timeline(row: Row, y: int, colours: dict[str, int]) -> str:
    """The axis, from the first tick to the end, and the marks on it."""
    marks: list[str] = []
    at = 0
    closing = 0
    asks = row.label in ("request", "time")
    for part in _PART.finditer(row.line):
        x = LEFT + TICK * at
        if part["group"]:
            mark, right = _group(part["group"][1:-1], x, y, colours)
            marks.append(mark)
            closing = right if part["group"].endswith("|)") else closing
        elif part["end"]:
            marks.append(f'<path class="end" d="M{x} {y - 11}V{y + 11}"/>')
        elif part["error"]:
            marks.append(f'<path class="error" d="M{x - 6} {y - 6}l12 12m0 -12l-12 12"/>')
        elif part["item"]:
            marks.append((_ask if asks else _item)(part["item"], x, y, colours))
        at += _length(part)
    last = closing or LEFT + TICK * (at - 1)
    ended = row.line.endswith(("|", "#", "|)"))
    axis = f'<path class="axis" d="M{LEFT - 10} {y}H{last if ended else last + 10}"/>'
    tip = "" if ended else f'<path class="tip" d="M{last + 14} {y}l-8 -4v8z"/>'
    return axis + tip + "".join(marks)


def _colour(name: str, colours: dict[str, int]) -> int:
    """One for each item of a diagram; `A` that is made from `a` has the colour of `a`."""
    return colours.setdefault(name.lower()[:1], len(colours) % 8)


def _item(text: str, x: int, y: int, colours: dict[str, int]) -> str:
    shown = escape(text.removesuffix("\\n"))
    after = f'<text class="small" x="{x + TICK}" y="{y - 5}">\\n</text>' if "\\n" in text else ""
    wide = 8 if len(text.removesuffix("\\n")) == 1 else 11
    return (
        f'<ellipse class="item c{_colour(text, colours)}" cx="{x}" cy="{y}" rx="{wide}" ry="9"/>'
        f'<text class="name" x="{x}" y="{y + 4}">{shown}</text>{after}'
    )


def _ask(text: str, x: int, y: int, colours: dict[str, int]) -> str:
    return (
        f'<path class="ask" d="M{x - 9} {y + 9}h18v-13l-9 -8l-9 8z"/>'
        f'<text class="name" x="{x}" y="{y + 6}">{escape(text)}</text>'
    )


def _group(text: str, x: int, y: int, colours: dict[str, int]) -> tuple[str, int]:
    """Items of one tick, in a box, and the x of its right side; `|` in the brackets is the end."""
    ends = text.endswith("|")
    items = [item for item in re.split(r",|(?<=\w)(?=\w)", text.rstrip("|").rstrip(",")) if item]
    last = x + BESIDE * max(0, len(items) - 1)
    right = last + 13
    wide = right - x + 13
    box = f'<rect class="group" x="{x - 13}" y="{y - 13}" width="{wide}" height="26" rx="13"/>'
    marks = "".join(_item(item, x + BESIDE * i, y, colours) for i, item in enumerate(items))
    end = f'<path class="end" d="M{right + 4} {y - 11}V{y + 11}"/>' if ends else ""
    return box + marks + end, right + 4
