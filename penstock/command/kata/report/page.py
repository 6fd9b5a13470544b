"""The measured runs side by side: as a page of HTML, and as one picture."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from penstock.command.kata.observe import Measured
from penstock.command.kata.report.table import LATENCIES, columns_of
from penstock.streams.pictures.charts import (
    Curve,
    Line,
    nines_of,
    over_time,
    percentiles,
)
from penstock.streams.telemetry.report.html import Cell, Html, document, section, table, text
from penstock.streams.telemetry.report.machine import machine

__all__ = ["broken", "page", "picture"]

_PROMISES = (
    ("duplicates_processed", "duplicates processed"),
    ("overlapped", "overlapped another of its client"),
    ("overtaken", "overtaken by a later one"),
    ("lost", "lost"),
    ("unfinished", "unfinished after the load"),
)
_WRONG = frozenset(("duplicates", "overlapped", "overtaken", "lost", "unfinished"))

# Of the picture: how many charts stand side by side, and the size of each with its text.
_ACROSS, _WIDTH, _HEIGHT, _CHART = 3, 312, 262, (300, 180)

_STYLE = """
    text { font-family: ui-sans-serif, system-ui, "Segoe UI", Helvetica, Arial, sans-serif; }
    .sheet { fill: #ffffff; }
    .name { fill: #14344c; font-size: 14px; font-weight: 600; }
    .mark, .note { fill: #52697a; font-size: 11px; }
    .kept { fill: #1f7a4d; font-size: 11px; font-weight: 600; }
    .wrong { fill: #b8432f; font-size: 11px; }
    .rule { stroke: #d3dfe8; fill: none; }
    .line { fill: none; stroke-width: 2.4; stroke: #0f5c8c; stroke-linejoin: round; }
    .line.bad { stroke: #b8432f; }
    .line.ghost { stroke: #9fb4c3; stroke-width: 1; opacity: .55; }
    @media screen and (prefers-color-scheme: dark) {
      .sheet { fill: #10181f; }
      .name { fill: #e4eef5; }
      .mark, .note { fill: #9fb4c3; }
      .kept { fill: #4fbf86; }
      .wrong { fill: #f08d7b; }
      .rule { stroke: #2a3d4b; }
      .line { stroke: #9fd3f5; }
      .line.bad { stroke: #f08d7b; }
    }
"""


def broken(run: Measured) -> list[tuple[int, str]]:
    """How often a run broke each promise of the kata that it broke."""
    return [(count, what) for name, what in _PROMISES if (count := getattr(run, name))]


def page(runs: Sequence[Measured], heading: str) -> str:
    """All that was measured, as a document in HTML. `heading` says of what load."""
    first = heading.partition("\n")[0]
    body = [
        Html(f"<header><h1>The stream kata</h1><p>{text(first)}</p></header>"),
        section("Step by step", _steps(runs)),
        section("All numbers", _numbers(runs), long=True),
        section("Machine and versions", [table(("", ""), machine().items(), texts=(1,))]),
    ]
    return document("The stream kata", body)


def _steps(runs: Sequence[Measured]) -> Iterator[str]:
    charts = _Charts(runs)
    longest = max((run.seconds for run in runs), default=1.0)
    yield (
        '<p class="soft">Latency is from creation to start of processing. Above by percentile, '
        "each step upwards ten times as long; below, the events that waited at each second.</p>"
    )
    yield '<div class="steps">'
    for run in runs:
        queue = [(0.0, 0.0), *((part.at, float(part.queue)) for part in run.intervals)]
        kind = "bad" if broken(run) else "one"
        yield f"<figure><h3>{text(run.variant)}</h3>"
        yield charts.of(run, kind)
        yield over_time(
            [Line("waiting", kind, queue, filled=True)],
            seconds=longest,
            size=(360, 110),
            label=f"{run.variant}: waiting events",
            top=charts.most,
            whole=True,
        )
        yield f"<p>{run.throughput:,.0f} events/s</p><ul>"
        faults = broken(run)
        for count, what in faults:
            yield f'<li class="wrong">{text(count)} {text(what)}</li>'
        yield ("" if faults else '<li class="kept">keeps every promise</li>') + "</ul></figure>"
    yield "</div>"


class _Charts:
    """Charts of several runs on the same axes."""

    def __init__(self, runs: Sequence[Measured]) -> None:
        measured = [run for run in runs if run.latency.count]
        self._runs = measured
        self._top = max((run.latency.max for run in measured), default=1.0)
        # A microsecond would take as much room as a second does.
        self._least = min((run.latency.median for run in measured), default=1e-3) / 5 or 1e-4
        self._nines = nines_of(max((run.latency.count for run in measured), default=1))
        self.most = max((part.queue for run in runs for part in run.intervals), default=1)

    def of(self, run: Measured, kind: str, size: tuple[int, int] = (360, 230)) -> str:
        behind = [Curve(one.variant, "ghost", one.cells) for one in self._runs if one is not run]
        curve = Curve(run.variant, kind, run.cells)
        return percentiles(
            curve, top=self._top, nines=self._nines, least=self._least, behind=behind, size=size
        )


def _numbers(runs: Sequence[Measured]) -> Iterator[str]:
    """Two tables: one of all columns would not fit next to each other."""
    name, *columns = columns_of(runs)
    for caption, of_latency in (("Events", False), ("Latency, in milliseconds", True)):
        shown = [name, *(one for one in columns if (one[0] in LATENCIES) is of_latency)]
        rows = [[_cell(head, of(run)) for head, of in shown] for run in runs]
        yield table([head for head, _ in shown], rows, caption=caption)


def _cell(head: str, shown: str) -> Cell:
    return Cell(shown, "wrong" if head in _WRONG and shown != "0" else "")


def picture(runs: Sequence[Measured]) -> str:
    """The latencies of all runs by percentile, and the promises that each broke, as SVG."""
    charts = _Charts(runs)
    across = min(_ACROSS, max(len(runs), 1))
    width = across * _WIDTH + 20
    height = -(-len(runs) // across) * _HEIGHT + 20
    parts: list[str] = []
    for at, run in enumerate(runs):
        left, top = 10 + at % across * _WIDTH, 10 + at // across * _HEIGHT
        chart = charts.of(run, "bad" if broken(run) else "one", _CHART)
        size = f'width="{_CHART[0]}" height="{_CHART[1]}"'
        chart = chart.replace("<svg ", f'<svg x="{left}" y="{top + 24}" {size} ', 1)
        parts.append(_words("name", left + 8, top + 18, run.variant))
        parts.append(chart)
        under = top + 24 + _CHART[1] + 12
        parts.append(_words("note", left + 8, under, f"{run.throughput:,.0f} events/s"))
        faults = [f"{count:,} {what}" for count, what in broken(run)]
        kept = run.latency.count and not faults
        notes = ["keeps every promise"] if kept else faults[:3]
        for row, words in enumerate(notes):
            kind = "kept" if kept else "wrong"
            parts.append(_words(kind, left + 100, under + 14 * row, words))
    label = "Latency by percentile of each step of the kata"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img" aria-label="{label}">\n'
        f"  <style>{_STYLE}  </style>\n"
        f'  <rect class="sheet" width="{width}" height="{height}" rx="12"/>\n'
        + "".join(f"  {part}\n" for part in parts)
        + "</svg>\n"
    )


def _words(kind: str, x: float, y: float, words: str) -> str:
    return f'<text class="{kind}" x="{x:g}" y="{y:g}">{escape(words)}</text>'
