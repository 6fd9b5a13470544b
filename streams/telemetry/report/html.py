"""Pieces of a page in HTML. What is given as text is escaped here, and nowhere else."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from typing import NamedTuple

from penstock.streams.base.errors import printable

__all__ = ["Cell", "Html", "document", "section", "table", "text"]


class Html(str):
    """Text that is HTML already: made of escaped parts only."""

    __slots__ = ()


class Cell(NamedTuple):
    """A cell of a table with a class of its own."""

    content: str | int | float
    kind: str


def text(value: str | int | float) -> Html:
    """A value as HTML: numbers with commas, text escaped."""
    if isinstance(value, Html):
        return value
    if isinstance(value, int):
        return Html(f"{value:,}")
    return Html(escape(str(value)))


def section(title: str, parts: Iterable[str], *, long: bool = False) -> Html:
    """A part of the page with a heading; a long one may go over pages when it is printed."""
    kind = ' class="long"' if long else ""
    return Html(f"<section{kind}><h2>{text(title)}</h2>{''.join(parts)}</section>")


def table(
    heads: Sequence[str],
    rows: Iterable[Sequence[str | int | float | Cell]],
    *,
    texts: Sequence[int] = (),
    caption: str = "",
) -> Html:
    """A table; the columns with the numbers `texts` have text that may be long."""

    def kind(column: int, own: str = "") -> str:
        kinds = " ".join(filter(None, ("text" if column in texts else "", own)))
        return f' class="{kinds}"' if kinds else ""

    head = "".join(f'<th scope="col"{kind(n)}>{text(one)}</th>' for n, one in enumerate(heads))
    body: list[str] = []
    for row in rows:
        cells = [cell if isinstance(cell, Cell) else Cell(cell, "") for cell in row]
        body.append(
            "<tr>"
            + "".join(f"<td{kind(n, c.kind)}>{text(c.content)}</td>" for n, c in enumerate(cells))
            + "</tr>"
        )
    above = f"<caption>{text(caption)}</caption>" if caption else ""
    return Html(
        f'<div class="scroll"><table>{above}<thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(body)}</tbody></table></div>"
    )


def document(title: str, body: Iterable[str]) -> str:
    """The whole page. A browser loads nothing for it, and runs no script in it."""
    style = files("penstock.streams.telemetry.report").joinpath("page.css").read_text("utf-8")
    page = (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        "style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{text(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n"
        + "\n".join(body)
        + "\n</body>\n</html>\n"
    )
    # Half of a pair of surrogates cannot be written, and a null is not allowed.
    return printable(page).replace("\0", "\\0")
