"""The measured runs as one table of plain text, a row each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from penstock.command.kata.observe import Measured
from penstock.command.output import aligned
from penstock.streams.diagnostics.histogram import Summary

__all__ = ["LATENCIES", "columns_of", "table"]


def _ms(seconds: float) -> str:
    milliseconds = seconds * 1000
    return f"{milliseconds:.1f}" if milliseconds < 1000 else f"{milliseconds:.0f}"


def _of(summary: Summary | None, field: Callable[[Summary], float]) -> str:
    return "-" if summary is None else _ms(field(summary))


Column = tuple[str, Callable[[Measured], str]]

_COLUMNS: tuple[Column, ...] = (
    ("variant", lambda run: run.variant),
    ("events/s", lambda run: f"{run.throughput:.0f}"),
    ("queue", lambda run: str(run.queue)),
    ("peak", lambda run: str(run.peak_queue)),
    ("count", lambda run: str(run.latency.count)),
    ("min", lambda run: _ms(run.latency.min)),
    ("max", lambda run: _ms(run.latency.max)),
    ("mean", lambda run: _ms(run.latency.mean)),
    ("median", lambda run: _ms(run.latency.median)),
    ("p75", lambda run: _ms(run.latency.p75)),
    ("p95", lambda run: _ms(run.latency.p95)),
    ("p98", lambda run: _ms(run.latency.p98)),
    ("p99", lambda run: _ms(run.latency.p99)),
    ("p999", lambda run: _ms(run.latency.p999)),
    ("lock-mean", lambda run: _of(run.lock_waits, lambda waits: waits.mean)),
    ("lock-p99", lambda run: _of(run.lock_waits, lambda waits: waits.p99)),
    ("duplicates", lambda run: str(run.duplicates_processed)),
    ("overlapped", lambda run: str(run.overlapped)),
    ("overtaken", lambda run: str(run.overtaken)),
    ("lost", lambda run: str(run.lost)),
    ("unfinished", lambda run: str(run.unfinished)),
)
# Only if a client was slow.
_OTHERS: Column = ("others-p99", lambda run: _of(run.others, lambda latency: latency.p99))

_WAITS = ("lock-mean", "lock-p99", "others-p99")

LATENCIES = frozenset(
    ("count", "min", "max", "mean", "median", "p75", "p95", "p98", "p99", "p999", *_WAITS)
)
"""The headings of the columns that are about latency."""


def columns_of(runs: Sequence[Measured]) -> tuple[Column, ...]:
    """The columns of a table of these runs: each a heading, and the text of a run in it."""
    return (*_COLUMNS, _OTHERS) if any(run.others for run in runs) else _COLUMNS


def table(runs: Iterable[Measured]) -> str:
    """Lines of aligned columns, with a heading and without a newline at the end.

    events/s finished; queue (found by the last arrival) and its peak; the latency from creation
    to start in milliseconds with its count; how long events waited for the lock of their client,
    of a variant with locks; then what went wrong: duplicates that were worked on, events that
    overlapped with or were overtaken by another of their client, events lost, events left
    unfinished at the end. If a client was slow, the last column is the latency of the others.
    """
    runs = list(runs)
    columns = columns_of(runs)
    rows = [[heading for heading, _ in columns]]
    rows += [[cell(run) for _, cell in columns] for run in runs]
    return "\n".join(aligned(rows, indent=""))
