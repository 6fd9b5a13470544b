"""Draws how states move between machines, for the page about that.

    make pictures ARGS=moving

writes `moving.svg` into docs/images.
"""

from __future__ import annotations

from html import escape
from pathlib import Path

__all__ = ["IMAGE", "picture"]

IMAGE = Path(__file__).parents[2] / "docs/images/moving.svg"

_WIDTH, _HEIGHT = 720, 372

_STYLE = """
    text { font-family: ui-sans-serif, system-ui, "Segoe UI", Helvetica, Arial, sans-serif;
      font-size: 13px; fill: #14344c; }
    .sheet { fill: #ffffff; }
    .box { fill: #eaf3f9; stroke: #4f8db5; }
    .gone { fill: none; stroke: #9db8cc; stroke-dasharray: 4 4; }
    .topic { fill: #f6efe2; stroke: #b08948; }
    .soft { fill: #52697a; font-size: 12px; }
    .line { stroke: #4f8db5; stroke-width: 1.6; fill: none; }
    .restore { stroke: #b08948; stroke-width: 2.4; fill: none; }
    @media (prefers-color-scheme: dark) {
      text { fill: #e4eef5; }
      .sheet { fill: #10181f; }
      .box { fill: #1b3a50; stroke: #6ba3c7; }
      .topic { fill: #3a3222; }
      .soft { fill: #9fb4c3; }
      .gone { stroke: #3d5a70; }
    }
"""


def _box(kind: str, x: int, y: int, width: int, height: int, *lines: str) -> str:
    first, *others = lines
    text = f'<text x="{x + 12}" y="{y + 22}">{escape(first)}</text>'
    for place, line in enumerate(others, 1):
        at = y + 22 + 18 * place
        text += f'<text class="soft" x="{x + 12}" y="{at}">{escape(line)}</text>'
    return f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}" rx="6"/>{text}'


def _arrow(kind: str, path: str, label: str = "", x: int = 0, y: int = 0) -> str:
    text = f'<text class="soft" x="{x}" y="{y}">{escape(label)}</text>' if label else ""
    return f'<path class="{kind}" d="{path}" marker-end="url(#{kind})"/>{text}'


def _heads() -> str:
    return "".join(
        f'<marker id="{kind}" markerWidth="8" markerHeight="8" refX="6" refY="3" orient="auto">'
        f'<path d="M0,0 L6,3 L0,6 z" fill="{colour}"/></marker>'
        for kind, colour in (("line", "#4f8db5"), ("restore", "#b08948"))
    )


def picture() -> str:
    """The picture, as SVG."""
    parts = [
        f'<rect class="sheet" width="{_WIDTH}" height="{_HEIGHT}"/>',
        _box("topic", 20, 20, 680, 62, "the topic that is read", "partitions 0, 1, 2 and 3"),
        _box("box", 20, 140, 205, 84, "member A", "states of partitions 0 and 1", "a local copy"),
        _box("gone", 257, 140, 205, 84, "member B was killed", "it had partition 2"),
        _box("box", 495, 140, 205, 84, "member C", "states of 3, and now of 2", "a local copy"),
        _box(
            *("topic", 20, 288, 680, 62, "the changelog, a compacted topic"),
            "partitions 0, 1, 2 and 3: the newest state of each key, and what is done",
        ),
        _arrow("line", "M110,82 L110,136", "events", 118, 114),
        _arrow("line", "M560,82 L560,136", "events of 3", 486, 114),
        _arrow("line", "M660,82 L660,136", "of 2, after the restore", 522, 100),
        _arrow("line", "M110,224 L110,284", "one transaction: states,", 118, 250),
        '<text class="soft" x="118" y="266">what is done, results</text>',
        _arrow("restore", "M620,284 L620,228", "restore 2", 630, 260),
    ]
    body = "".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        'aria-label="Partition 2 of a killed member goes to another one, which restores its states '
        f'from the changelog before the first event"><style>{_STYLE}</style>'
        f"<defs>{_heads()}</defs>{body}</svg>\n"
    )
