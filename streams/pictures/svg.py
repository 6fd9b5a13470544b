"""An SVG document, and text in it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape

__all__ = ["FONT", "document", "in_xml", "text"]

FONT = """
    text { font-family: ui-sans-serif, system-ui, "Segoe UI", Helvetica, Arial, sans-serif; }"""
"""The rule of all texts, with which a style begins."""

_NOT_IN_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


def in_xml(text: str) -> str:
    """The text, escaped. A character that no XML document may have, not even escaped, is shown as
    in `\\x01`: a viewer would refuse the whole picture."""
    return escape(_NOT_IN_XML.sub(_shown, text))


def _shown(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()


def document(width: float, height: float, label: str, style: str, parts: Iterable[str]) -> str:
    """A whole picture on a `sheet`. `label` is for screen readers."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}" '
        f'viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{in_xml(label)}">\n'
        f"  <style>{style}  </style>\n"
        f'  <rect class="sheet" width="{width:g}" height="{height:g}" rx="12"/>\n'
        + "".join(f"  {part}\n" for part in parts if part)
        + "</svg>\n"
    )


def text(kind: str, x: float, y: float, shown: str, anchor: str = "start") -> str:
    """An element of text, which begins at this place, or ends there, or has its middle there."""
    where = f'x="{x:g}" y="{y:g}"' + ("" if anchor == "start" else f' text-anchor="{anchor}"')
    return f'<text class="{kind}" {where}>{in_xml(shown)}</text>'


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
