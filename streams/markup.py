"""Text as it may stand in an XML document, such as an SVG picture."""

from __future__ import annotations

import re
from html import escape

__all__ = ["in_xml"]

_NOT_IN_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


def in_xml(text: str) -> str:
    """The text, escaped. A character that no XML document may have, not even escaped, is shown as
    in `\\x01`: a viewer would refuse the whole picture."""
    return escape(_NOT_IN_XML.sub(_shown, text))


def _shown(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()
