"""Draws graphs of steps, such as a workflow with the path that breaks a rule."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import NamedTuple

from penstock.streams.pictures.svg import FONT, document, text
from penstock.streams.temporal.workflow.rule import CounterExample
from penstock.streams.temporal.workflow.workflow import Workflow

__all__ = ["Arc", "Picture", "as_dot", "as_svg", "picture_of"]

# Of larger graphs only the marked nodes and their neighbours are drawn.
_MOST_NODES = 60

# The most characters of the title.
_LONGEST = 90

# All in pixels. Text is not measured, but a letter is about this wide.
_LETTER, _HEIGHT, _ROW, _GAP, _MARGIN = 8.2, 34, 92, 36, 40

# Of an arc with a share.
_THINNEST, _WIDER = 1.2, 3.3

_STYLE = (
    FONT
    + """
    .sheet { fill: #ffffff; }
    .node { fill: #f4f8fb; stroke: #9db8cc; }
    .node.on { fill: #fdf0ea; stroke: #c8552b; stroke-width: 2; }
    .name { fill: #14344c; font-size: 14px; }
    .arc { stroke: #a9bdcb; stroke-width: 1.3; fill: none; }
    .dashed { stroke-dasharray: 4 4; }
    .arc.on { stroke: #c8552b; stroke-width: 3; }
    .tip { fill: #a9bdcb; }
    .tip.on { fill: #c8552b; }
    .label { fill: #4a6478; font-size: 13px; }
    .label.on { fill: #c8552b; font-weight: 600; }
    .title { fill: #14344c; font-size: 14px; font-weight: 600; }
    @media (prefers-color-scheme: dark) {
      .sheet { fill: #10181f; }
      .node { fill: #182530; stroke: #3d5a70; }
      .node.on { fill: #3a2018; stroke: #ef8a62; }
      .name, .title { fill: #e4eef5; }
      .arc { stroke: #4d6577; }
      .arc.on { stroke: #ef8a62; }
      .tip { fill: #4d6577; }
      .label { fill: #a9c0d0; }
      .tip.on, .label.on { fill: #ef8a62; }
    }
"""
)

_Box = tuple[float, float, float]


class Arc(NamedTuple):
    """From one node to another; `on` is marked. `share`, from 0 to 1, makes it wider."""

    begin: str
    end: str
    label: str = ""
    dashed: bool = False
    on: bool = False
    share: float | None = None

    @property
    def width(self) -> float | None:
        return None if self.share is None else round(_THINNEST + _WIDER * self.share, 1)


@dataclass(frozen=True, slots=True)
class Picture:
    """The content of a drawing: the marked nodes are `on`, `texts` of nodes replace their names.

    A node's row is its distance from the `first` nodes by the arcs that `lead`; others begin again
    below.
    """

    title: str
    nodes: list[str]
    arcs: list[Arc]
    lead: list[tuple[str, str]]
    on: frozenset[str] = frozenset()
    first: tuple[str, ...] = ()
    texts: dict[str, str] | None = None

    def text(self, name: str) -> str:
        return name if self.texts is None else self.texts[name]

    def shown(self) -> list[str]:
        """All nodes, or of many the marked ones and those to which they lead."""
        if len(self.nodes) <= _MOST_NODES:
            return self.nodes
        if not self.on:
            return self.nodes[:_MOST_NODES]
        near = [b for a, b in self.lead if a in self.on]
        kept = set([*self.on, *near][: max(_MOST_NODES, len(self.on))])
        return [name for name in self.nodes if name in kept]


def picture_of(workflow: Workflow, example: CounterExample | None) -> Picture:
    """A workflow, with the path that breaks a rule marked and its steps numbered; arcs by input are
    dashed."""
    steps: dict[tuple[str, str], list[int]] = {}
    for number, arc in enumerate(() if example is None else example.steps, 1):
        steps.setdefault(arc, []).append(number)
    return Picture(
        title="" if example is None else _title(example),
        nodes=list(workflow.nodes),
        arcs=[
            Arc(a, b, ", ".join(map(str, steps.get((a, b), ()))), kind == "input", (a, b) in steps)
            for a, b, kind in workflow.arcs()
        ],
        lead=[(a, b) for a, node in workflow.nodes.items() for b in node.goto],
        on=frozenset(() if example is None else example.path),
        first=() if example is None else example.path,
    )


def as_dot(picture: Picture) -> str:
    """The text that Graphviz draws."""
    lines = ["digraph workflow {", "    node [shape=box, style=rounded]"]
    if picture.title:
        lines.append(f"    label={json.dumps(picture.title)}")
    shown = picture.shown()
    for name in shown:
        looks = ["color=red", "penwidth=2"] if name in picture.on else []
        if picture.text(name) != name:
            looks.append(f"label={json.dumps(picture.text(name))}")
        lines.append(f"    {json.dumps(name)}{_attributes(looks)}")
    for arc in picture.arcs:
        if arc.begin in shown and arc.end in shown:
            looks = ["style=dashed"] if arc.dashed else []
            looks += ["color=red"] if arc.on else []
            width = 2 if arc.on and arc.width is None else arc.width
            looks += [f"penwidth={width:g}"] if width is not None else []
            looks += [f'label="{arc.label}"'] if arc.label else []
            lines.append(
                f"    {json.dumps(arc.begin)} -> {json.dumps(arc.end)}{_attributes(looks)}"
            )
    return "\n".join([*lines, "}", ""])


def _attributes(looks: list[str]) -> str:
    return f" [{', '.join(looks)}]" if looks else ""


def as_svg(picture: Picture) -> str:
    """An SVG document, readable on light and dark backgrounds."""
    shown, title = picture.shown(), picture.title
    boxes, width, height = _layout(picture, shown, len(title) * _LETTER)
    parts: list[str] = []
    # Marked parts come last, above the rest.
    arcs = [arc for arc in picture.arcs if arc.begin in boxes and arc.end in boxes]
    for arc in sorted(arcs, key=lambda arc: arc.on):
        parts += _arc(boxes[arc.begin], boxes[arc.end], arc)
    for name, (middle, top, wide) in boxes.items():
        mark = " on" if name in picture.on else ""
        parts.append(
            f'<rect class="node{mark}" x="{middle - wide / 2:g}" y="{top:g}" width="{wide:g}" '
            f'height="{_HEIGHT}" rx="9"/>'
        )
        parts.append(text("name", middle, top + 22, picture.text(name), "middle"))
    if title:
        parts.append(text("title", width / 2, 26, title, "middle"))
    return document(width, height, title or "workflow", _STYLE, parts)


def _layout(
    picture: Picture, shown: list[str], least: float
) -> tuple[dict[str, _Box], float, float]:
    """(middle, top, width) of each node, and the size of the sheet, which is `least` wide."""
    left = dict.fromkeys(shown)
    left = dict.fromkeys([*(name for name in picture.first if name in left), *left])
    leading: dict[str, list[str]] = {}
    for a, b in picture.lead:
        leading.setdefault(a, []).append(b)
    rows: list[list[str]] = []
    # Nodes that cannot be reached from the first begin again below.
    while left:
        layer = [next(iter(left))]
        del left[layer[0]]
        while layer:
            rows.append(layer)
            after = dict.fromkeys(b for a in layer for b in leading.get(a, ()) if b in left)
            layer = list(after)
            for name in layer:
                del left[name]
    wides = {name: len(picture.text(name)) * _LETTER + 28 for name in shown}
    lengths = [sum(wides[name] + _GAP for name in row) - _GAP for row in rows]
    inner = max(*lengths, least - 2 * _MARGIN)
    boxes: dict[str, _Box] = {}
    for at, (row, length) in enumerate(zip(rows, lengths, strict=True)):
        x = 2 * _MARGIN + (inner - length) / 2
        for name in row:
            boxes[name] = (x + wides[name] / 2, _MARGIN + 14 + at * _ROW, wides[name])
            x += wides[name] + _GAP
    return boxes, inner + 4 * _MARGIN, len(rows) * _ROW + _MARGIN


def _arc(a: _Box, b: _Box, arc: Arc) -> list[str]:
    mark = " on" if arc.on else ""
    looks = (" dashed" if arc.dashed else "") + mark
    (x, y, wide), (to_x, to_y, to_wide) = a, b
    if to_y > y:
        y += _HEIGHT
        half = (y + to_y) / 2
        path = f"M{x:g} {y:g}C{x:g} {half:g} {to_x:g} {half:g} {to_x:g} {to_y - 7:g}"
        tip = f"M{to_x - 5:g} {to_y - 8:g}h10l-5 8Z"
        label = ((x + to_x) / 2 + 8, half + 4)
    elif to_y == y and to_x != x:
        # Beside it: there above, back below the middle.
        way = 1 if to_x > x else -1
        x, to_x = x + way * wide / 2, to_x - way * to_wide / 2
        y += 17 - 7 * way
        bow = y - 12 * way
        path = f"M{x:g} {y:g}C{x + 12 * way:g} {bow:g} {to_x - 20 * way:g} {bow:g} " + (
            f"{to_x - 7 * way:g} {y:g}"
        )
        tip = f"M{to_x - 8 * way:g} {y - 5:g}v10l{8 * way:g} -5Z"
        label = ((x + to_x) / 2 - 4, bow - 4 if way > 0 else bow + 14)
    else:
        # Back, or to itself: out and in on the right.
        x, y, to_x, to_y = x + wide / 2, y + 11, to_x + to_wide / 2, to_y + 23
        out = max(x, to_x) + 26
        path = f"M{x:g} {y:g}C{out:g} {y:g} {out:g} {to_y:g} {to_x + 7:g} {to_y:g}"
        tip = f"M{to_x + 8:g} {to_y - 5:g}v10l-8 -5Z"
        label = (out - 2, (y + to_y) / 2 + 4)
    style = "" if arc.width is None else f' style="stroke-width:{arc.width:g}"'
    parts = [
        f'<path class="arc{looks}"{style} d="{path}"/>',
        f'<path class="tip{mark}" d="{tip}"/>',
    ]
    if arc.label:
        parts.append(text(f"label{mark}", *label, arc.label))
    return parts


def _title(example: CounterExample) -> str:
    title = f"'{example.rule.name}' is broken by {example}"
    return title if len(title) <= _LONGEST else title[: _LONGEST - 1] + "…"
