"""Draws a workflow, with the path that breaks a rule marked and its steps numbered."""

from __future__ import annotations

import json
from html import escape

from penstock.streams.temporal.workflow.rule import CounterExample
from penstock.streams.temporal.workflow.workflow import Workflow

__all__ = ["as_dot", "as_svg"]

# For larger workflows only the path and its neighbours are drawn.
_MOST_NODES = 60

# The most characters of the title.
_LONGEST = 90

# All in pixels. Text is not measured, but a letter is about this wide.
_LETTER, _HEIGHT, _ROW, _GAP, _MARGIN = 8.2, 34, 92, 36, 40

_STYLE = """
    text { font-family: ui-sans-serif, system-ui, "Segoe UI", Helvetica, Arial, sans-serif; }
    .sheet { fill: #ffffff; }
    .node { fill: #f4f8fb; stroke: #9db8cc; }
    .node.on { fill: #fdf0ea; stroke: #c8552b; stroke-width: 2; }
    .name { fill: #14344c; font-size: 14px; }
    .arc { stroke: #a9bdcb; stroke-width: 1.3; fill: none; }
    .input { stroke-dasharray: 4 4; }
    .arc.on { stroke: #c8552b; stroke-width: 3; }
    .tip { fill: #a9bdcb; }
    .tip.on { fill: #c8552b; }
    .step { fill: #c8552b; font-size: 13px; font-weight: 600; }
    .title { fill: #14344c; font-size: 14px; font-weight: 600; }
    @media (prefers-color-scheme: dark) {
      .sheet { fill: #10181f; }
      .node { fill: #182530; stroke: #3d5a70; }
      .node.on { fill: #3a2018; stroke: #ef8a62; }
      .name, .title { fill: #e4eef5; }
      .arc { stroke: #4d6577; }
      .arc.on { stroke: #ef8a62; }
      .tip { fill: #4d6577; }
      .tip.on, .step { fill: #ef8a62; }
    }
"""

_Box = tuple[float, float, float]


def as_dot(workflow: Workflow, example: CounterExample | None) -> str:
    """The text that Graphviz draws; arcs by input are dashed."""
    on, steps = _marked(example)
    lines = ["digraph workflow {", "    node [shape=box, style=rounded]"]
    if example is not None:
        lines.append(f"    label={json.dumps(_title(example))}")
    shown = _shown(workflow, on)
    for name in shown:
        lines.append(f"    {json.dumps(name)}{' [color=red, penwidth=2]' if name in on else ''}")
    for a, b, kind in workflow.arcs():
        if a in shown and b in shown:
            looks = ["style=dashed"] if kind == "input" else []
            if (a, b) in steps:
                looks += ["color=red", "penwidth=2", f'label="{_numbers(steps[a, b])}"']
            shown_looks = f" [{', '.join(looks)}]" if looks else ""
            lines.append(f"    {json.dumps(a)} -> {json.dumps(b)}{shown_looks}")
    return "\n".join([*lines, "}", ""])


def as_svg(workflow: Workflow, example: CounterExample | None) -> str:
    """An SVG document, readable on light and dark backgrounds; arcs by input are dashed."""
    on, steps = _marked(example)
    shown = _shown(workflow, on)
    title = "" if example is None else _title(example)
    boxes, width, height = _layout(workflow, shown, example, len(title) * _LETTER)
    parts: list[str] = []
    # Marked parts come last, above the rest.
    arcs = [(a, b, kind) for a, b, kind in workflow.arcs() if a in boxes and b in boxes]
    for a, b, kind in sorted(arcs, key=lambda arc: arc[:2] in steps):
        parts += _arc(boxes[a], boxes[b], kind, steps.get((a, b), []))
    for name, (middle, top, wide) in boxes.items():
        mark = " on" if name in on else ""
        parts.append(
            f'<rect class="node{mark}" x="{middle - wide / 2:g}" y="{top:g}" width="{wide:g}" '
            f'height="{_HEIGHT}" rx="9"/>'
        )
        parts.append(_text("name", middle, top + 22, name))
    if title:
        parts.append(_text("title", width / 2, 26, title))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}" '
        f'viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escape(title or "workflow")}">'
        f'\n  <style>{_STYLE}  </style>\n  <rect class="sheet" width="{width:g}" '
        f'height="{height:g}" rx="12"/>\n' + "".join(f"  {part}\n" for part in parts) + "</svg>\n"
    )


def _marked(
    example: CounterExample | None,
) -> tuple[frozenset[str], dict[tuple[str, str], list[int]]]:
    """The nodes of the path, and the numbers of its steps by arc."""
    steps: dict[tuple[str, str], list[int]] = {}
    if example is None:
        return frozenset(), steps
    for number, arc in enumerate(example.steps, 1):
        steps.setdefault(arc, []).append(number)
    return frozenset(example.path), steps


def _shown(workflow: Workflow, on: frozenset[str]) -> list[str]:
    names = list(workflow.nodes)
    if len(names) <= _MOST_NODES:
        return names
    if not on:
        return names[:_MOST_NODES]
    near = [other for name in names if name in on for other in workflow.nodes[name].goto]
    kept = set([*on, *near][: max(_MOST_NODES, len(on))])
    return [name for name in names if name in kept]


def _layout(
    workflow: Workflow, shown: list[str], example: CounterExample | None, least: float
) -> tuple[dict[str, _Box], float, float]:
    """(middle, top, width) of each node, and the size of the sheet, which is `least` wide.

    Rows are by the distance from where the path begins.
    """
    left = dict.fromkeys(shown)
    if example is not None:
        left = dict.fromkeys([*(name for name in example.path if name in left), *left])
    rows: list[list[str]] = []
    # Nodes that cannot be reached from the first begin again below.
    while left:
        layer = [next(iter(left))]
        del left[layer[0]]
        while layer:
            rows.append(layer)
            after = dict.fromkeys(b for a in layer for b in workflow.nodes[a].goto if b in left)
            layer = list(after)
            for name in layer:
                del left[name]
    wides = {name: len(name) * _LETTER + 28 for name in shown}
    lengths = [sum(wides[name] + _GAP for name in row) - _GAP for row in rows]
    inner = max(*lengths, least - 2 * _MARGIN)
    boxes: dict[str, _Box] = {}
    for at, (row, length) in enumerate(zip(rows, lengths, strict=True)):
        x = 2 * _MARGIN + (inner - length) / 2
        for name in row:
            boxes[name] = (x + wides[name] / 2, _MARGIN + 14 + at * _ROW, wides[name])
            x += wides[name] + _GAP
    return boxes, inner + 4 * _MARGIN, len(rows) * _ROW + _MARGIN


def _arc(a: _Box, b: _Box, kind: str, numbers: list[int]) -> list[str]:
    looks = (" input" if kind == "input" else "") + (" on" if numbers else "")
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
    mark = " on" if numbers else ""
    parts = [f'<path class="arc{looks}" d="{path}"/>', f'<path class="tip{mark}" d="{tip}"/>']
    if numbers:
        parts.append(_text("step", *label, _numbers(numbers), "start"))
    return parts


def _numbers(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers))


def _title(example: CounterExample) -> str:
    title = f"'{example.rule.name}' is broken by {example}"
    return title if len(title) <= _LONGEST else title[: _LONGEST - 1] + "…"


def _text(kind: str, x: float, y: float, text: str, anchor: str = "middle") -> str:
    where = f'x="{x:g}" y="{y:g}" text-anchor="{anchor}"'
    return f'<text class="{kind}" {where}>{escape(text)}</text>'
