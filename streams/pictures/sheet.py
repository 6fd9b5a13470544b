"""The sheet on which curves are drawn: its size and colours, titles and the legend."""

from __future__ import annotations

from penstock.streams.pictures.svg import document, text

__all__ = [
    "BOTTOM",
    "COLOURS",
    "HEIGHT",
    "LEFT",
    "RIGHT",
    "TOP",
    "WIDTH",
    "legend",
    "sheet",
]

# In pixels.
WIDTH, HEIGHT = 760, 380
LEFT, RIGHT, TOP, BOTTOM = 70, 24, 56, 48

# Okabe and Ito's palette, which colour-blind readers can tell apart, without its black and yellow.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")

_STYLE = """
    text { font-family: ui-sans-serif, system-ui, "Segoe UI", Helvetica, Arial, sans-serif;
           font-size: 12px; fill: #52697a; }
    .sheet { fill: #ffffff; }
    .title { font-size: 15px; font-weight: 600; fill: #14344c; }
    .grid { stroke: #d5e0e8; }
    .curve { fill: none; stroke-width: 1.8; }
    @media (prefers-color-scheme: dark) {
      .sheet { fill: #10181f; }
      text { fill: #9fb4c3; }
      .title { fill: #e4eef5; }
      .grid { stroke: #2a3d4b; }
    }
"""


def sheet(label: str, *panels: list[str]) -> str:
    """An SVG document of panels, each of elements within WIDTH and HEIGHT."""
    height = HEIGHT * len(panels)
    drawn = [
        f'<g transform="translate(0 {HEIGHT * at})">\n'
        + "".join(f"    {part}\n" for part in parts)
        + "  </g>"
        for at, parts in enumerate(panels)
    ]
    return document(WIDTH, height, label, _STYLE, drawn)


def legend(names: list[str]) -> list[str]:
    """The names of the curves, in the order of COLOURS."""
    parts: list[str] = []
    slot = (WIDTH - LEFT - RIGHT) / max(len(names), 4)
    longest = int(slot / 8) - 1
    for at, name in enumerate(names):
        x = LEFT + at * slot
        shown = name if len(name) <= longest else f"{name[: longest - 1]}…"
        parts.append(f'<rect x="{x:g}" y="37" width="12" height="4" fill="{COLOURS[at]}"/>')
        parts.append(text("label", x + 17, 43, shown))
    return parts
