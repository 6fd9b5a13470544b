"""The report page of `penstock run --workers N --data FOLDER`: the whole, and a page per worker."""

from __future__ import annotations

import os
from typing import NamedTuple

from penstock.streams.telemetry.report.charts import in_time
from penstock.streams.telemetry.report.html import Html, document, section, table, text
from penstock.streams.telemetry.report.machine import machine

__all__ = ["Whole", "page", "path_of"]


class Whole(NamedTuple):
    """What became of all events, and how each worker ended: "" if well."""

    title: str
    seconds: float
    status: int
    left: int
    """Events of earlier runs that were unfinished at the beginning."""
    stored: int
    duplicates: int
    letters: int
    """Those of this run."""
    unfinished: int
    workers: list[str]

    @property
    def done(self) -> int:
        """The events that are neither unfinished nor dead letters."""
        return max(self.left + self.stored - self.letters - self.unfinished, 0)


def path_of(path: str, worker: int) -> str:
    """The path of the page of one worker: `run-worker-1.html` beside `run.html`."""
    stem, ending = os.path.splitext(path)
    return f"{stem}-worker-{worker}{ending}"


def page(whole: Whole, path: str) -> str:
    """The page about the whole run at `path`, with links to those of its workers."""
    rate = f", {whole.done / whole.seconds:,.0f} events/s" if whole.seconds > 0 else ""
    kind = "outcome" if whole.status in (0, 4) else "outcome bad"
    head = (
        f'<header><h1>{text(whole.title)}</h1><p><span class="{kind}">exit status '
        f"{whole.status}</span> after {text(in_time(whole.seconds))}{rate}</p></header>"
    )
    rows = [
        (f"worker-{number}", _link(path_of(path, number)) if not ended else text(ended))
        for number, ended in enumerate(whole.workers, 1)
    ]
    body = [
        Html(head),
        section("Where every event is", [_account(whole)]),
        section("Workers", [table(("worker", "its page"), rows, texts=(1,))]),
        section("Machine and versions", [table(("", ""), machine().items(), texts=(1,))]),
    ]
    return document(whole.title, body)


def _account(whole: Whole) -> str:
    left = [("left before", whole.left, ""), ("stored", whole.stored, "+")]
    parts = [
        *(left if whole.left else [("stored", whole.stored, "")]),
        ("done", whole.done, "="),
        ("dead letters", whole.letters, "+"),
        ("unfinished", whole.unfinished, "+"),
    ]
    words: list[str] = []
    for name, count, sign in parts:
        bad = ' class="bad"' if name in ("dead letters", "unfinished") and count else ""
        words.append(f'<div class="sign">{sign}</div>' if sign else "")
        words.append(f"<div{bad}><b>{text(count)}</b>{name}</div>")
    said = (
        "Done are those that were finished, dropped or skipped: the pages of the workers say which."
    )
    if whole.duplicates:
        said += f" Besides, {text(whole.duplicates)} duplicates were dropped."
    return f'<div class="account">{"".join(words)}</div><p class="soft">{said}</p>'


def _link(path: str) -> Html:
    name = text(os.path.basename(path))
    return Html(f'<a href="{name}">{name}</a>')
