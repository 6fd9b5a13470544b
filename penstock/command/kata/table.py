"""The measured runs as one table of plain text, a row each."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from penstock.command.kata.observe import Measured

__all__ = ["table"]


def _ms(seconds: float) -> str:
    milliseconds = seconds * 1000
    return f"{milliseconds:.1f}" if milliseconds < 1000 else f"{milliseconds:.0f}"


_COLUMNS: tuple[tuple[str, Callable[[Measured], str]], ...] = (
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
    ("duplicates", lambda run: str(run.duplicates_processed)),
    ("overlapped", lambda run: str(run.overlapped)),
    ("overtaken", lambda run: str(run.overtaken)),
    ("lost", lambda run: str(run.lost)),
    ("unfinished", lambda run: str(run.unfinished)),
)


def table(runs: Iterable[Measured]) -> str:
    """Lines of aligned columns, with a heading and without a newline at the end.

    events/s finished; queue (found by the last arrival) and its peak; the latency from creation
    to start in milliseconds with its count; then what went wrong: duplicates that were worked
    on, events that overlapped with or were overtaken by another of their client, events lost,
    events left unfinished at the end.
    """
    rows = [[heading for heading, _ in _COLUMNS]]
    rows += [[cell(run) for _, cell in _COLUMNS] for run in runs]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if position == 0 else cell.rjust(width)
            for position, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )
