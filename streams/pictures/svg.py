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
