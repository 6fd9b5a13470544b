"""Latency histograms in the layout of HdrHistogram, cheap enough to record every event.

Source: Gil Tene's HdrHistogram (https://hdrhistogram.github.io/HdrHistogram/), with its bucket
layout, percentile definition and interval log format version 1.2.

Values from 1 microsecond to 1 hour are kept to 3 significant digits. They are counted here, a chunk
at a time: recording one value in the Python port of HdrHistogram costs about ten times as much. The
port, which comes with the extra `hdr`, writes the interval log for the usual tools.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import import_module
from itertools import accumulate
from math import floor, inf, sqrt
from struct import pack
from typing import Any, TextIO

from penstock.streams.extras import missing_extra

__all__ = ["IntervalLog", "LatencyHistogram", "Summary", "render", "require_interval_log"]

_HIGHEST = 3_600_000_000  # microseconds: one hour
_DIGITS = 3
# 3 digits need 2,048 cells for the first values, of 1 microsecond each; from there on every power
# of two has 1,024 cells. So the cell of a value above 2,048 is its first 11 binary digits.
_EXACT = 2048
_CELL_BITS = 11

_PERCENTILES = (50.0, 75.0, 95.0, 98.0, 99.0, 99.9)

# Values that are counted together, so that the table of counts is in the processor's cache.
_CHUNK = 16_384
_LAST_CELL = _HIGHEST >> 21 << 21

# If there are more counts than this, they are merged by cell.
_MOST_COUNTS = 16_384
_BELOW, _BEYOND = -1.0, inf

# A float32 has 23 bits after its first one. Clearing the last 13, one whole byte and 5 bits of the
# next, counted from the least significant, leaves the 11 binary digits that identify an HDR cell.
_CLEAR_5_BITS = bytes(byte & 0b1110_0000 for byte in range(256))
_LAST, _NEXT = (0, 1) if sys.byteorder == "little" else (3, 2)


# Any: the package has no types. Imported only when it is needed, because that is slow.
def _hdrh(module: str) -> Any:
    try:
        return import_module(f"hdrh.{module}")
    except ImportError as error:
        raise missing_extra("An interval log needs hdrhistogram", "hdr") from error


def require_interval_log() -> None:
    """Raise MissingExtra if no interval log can be written."""
    _hdrh("log")


@dataclass(frozen=True, slots=True)
class Summary:
    """The summary of a histogram, in seconds; all 0 if nothing was recorded.

    As HdrHistogram defines them: a percentile p is the upper end of the cell of the value at rank
    p/100 x count, `max` is the upper end and `min` the lower end of their cells, mean and (the
    population's) stddev take every value as the middle of its cell.
    """

    count: int
    min: float
    max: float
    mean: float
    median: float
    p75: float
    p95: float
    p98: float
    p99: float
    p999: float
    stddev: float
    beyond: int
    """Values above one hour (to the histogram's precision), counted as one hour; NaN too."""
    negative: int
    """Values below 0, counted as 0."""


class LatencyHistogram:
    """Count latencies from 1 microsecond to 1 hour with 3 digits.

    Time: two passes of C code; a summary takes as long as what was recorded since the last one has
    cells. Memory: 16,384 values, and at most 49,152 counts: one for each of the 23,221 cells that
    is not empty, and for fractions of the microseconds below 1,024.
    """

    __slots__ = ("_beyond", "_blocks", "_fresh", "_negative", "_recent", "_squares", "_sum")

    def __init__(self) -> None:
        self._recent = array("f")
        # Counts by value, not yet merged by cell; then by cell, in blocks of about a thousand.
        self._fresh: Counter[float] = Counter()
        self._blocks: dict[int, _Block] = {}
        # Of the values and of their squares, each as the middle of its cell. Sums of ints, hence
        # exact: no difference between them can lose what matters.
        self._sum = self._squares = 0
        self._beyond = self._negative = 0

    def record(self, *seconds: float) -> None:
        """Record values in seconds; many at once are cheaper than one by one."""
        self.count([value * 1e6 for value in seconds])

    def count(self, values: Sequence[float]) -> None:
        """Record values in microseconds."""
        # Takes a third of the time in which the array reads numbers.
        self._recent.frombytes(pack(f"{len(values)}f", *values))
        if len(self._recent) >= _CHUNK:
            self._count()

    def add(self, other: LatencyHistogram, times: int = 1) -> None:
        """Add everything that `other` has recorded, so many times; `other` keeps it."""
        other._put_together()
        for number, block in other._blocks.items():
            mine = self._blocks.get(number)
            if mine is None:
                mine = self._blocks[number] = _Block()
                mine.cells = {value: n * times for value, n in block.cells.items()}
            else:
                cells = mine.cells
                for value, n in block.cells.items():
                    cells[value] = cells.get(value, 0) + n * times
            mine.count += block.count * times
        self._sum += other._sum * times
        self._squares += other._squares * times
        self._beyond += other._beyond * times
        self._negative += other._negative * times

    def reset(self) -> None:
        """Forget everything recorded."""
        del self._recent[:]
        self._fresh.clear()
        self._blocks.clear()
        self._sum = self._squares = self._beyond = self._negative = 0

    def cells(self) -> list[tuple[int, int]]:
        """Return (lowest value of a cell in microseconds, count) in ascending order."""
        self._put_together()
        return [cell for _, block in sorted(self._blocks.items()) for cell in block.ascending()]

    def snapshot(self) -> Summary:
        """Summarise what was recorded since the last reset."""
        self._put_together()
        blocks = [block for _, block in sorted(self._blocks.items())]
        count = sum(block.count for block in blocks)
        total, squares, of = self._sum, self._squares, max(count, 1)
        median, p75, p95, p98, p99, p999 = _percentiles(blocks, count)
        return Summary(
            count=count,
            min=min(blocks[0].cells) / 1e6 if blocks else 0.0,
            max=_upper(max(blocks[-1].cells)) / 1e6 if blocks else 0.0,
            mean=total / of / 1e6,
            median=median / 1e6,
            p75=p75 / 1e6,
            p95=p95 / 1e6,
            p98=p98 / 1e6,
            p99=p99 / 1e6,
            p999=p999 / 1e6,
            stddev=sqrt((of * squares - total * total) / (of * of)) / 1e6,
            beyond=self._beyond,
            negative=self._negative,
        )

    def _count(self) -> None:
        """Count the recent values by their cells.

        A float32 is exact for whole microseconds up to 16 seconds, and beyond them moves a value by
        less than a 16-millionth. Fractions that have cells of their own cost no more to count.
        """
        octets = bytearray(self._recent)
        octets[_LAST::4] = bytes(len(self._recent))
        octets[_NEXT::4] = octets[_NEXT::4].translate(_CLEAR_5_BITS)
        self._recent = array("f", bytes(octets))
        self._fresh.update(self._recent)
        del self._recent[:]
        if len(self._fresh) > _MOST_COUNTS:
            self._merge()

    def _put_together(self) -> None:
        """Have all counts in the blocks."""
        if self._recent:
            self._count()
        if self._fresh:
            self._merge()

    def _merge(self) -> None:
        """Add the counts by value to those of the cells."""
        blocks, exact = self._blocks, _EXACT // 2
        for value, n in self._fresh.items():
            # From there on the rest of a value is a cell already.
            if exact <= value <= _LAST_CELL:
                cell = int(value)
            elif value < exact:
                cell = floor(max(value, _BELOW) + 0.5)
                if cell < 0:
                    self._negative += n
                    cell = 0
            else:
                # NaN, too, counts as beyond all cells.
                self._beyond += n
                cell = _LAST_CELL
            number = cell.bit_length()
            # The middle of a cell is half its width above its lowest value.
            middle = cell if cell < _EXACT else cell + (1 << number - _CELL_BITS - 1)
            self._sum += middle * n
            self._squares += middle * middle * n
            block = blocks.get(number)
            if block is None:
                block = blocks[number] = _Block()
            block.count += n
            block.cells[cell] = block.cells.get(cell, 0) + n
        self._fresh.clear()


class _Block:
    """The cells of the values with as many binary digits; at most 1,024 from the eleventh on."""

    __slots__ = ("cells", "count")

    def __init__(self) -> None:
        self.cells: dict[int, int] = {}
        """The count of each cell by its lowest value."""
        self.count = 0

    def ascending(self) -> list[tuple[int, int]]:
        """The cells in ascending order."""
        return sorted(self.cells.items())


class IntervalLog:
    """Write histograms as an HDR interval log, which HistogramLogAnalyzer, Plotter and others read.

    `stream` is text and stays open. `started` is the time of the first interval in seconds since
    the epoch; intervals are then given in seconds since `started`. Values are in microseconds, the
    largest of each interval is in milliseconds.
    """

    def __init__(self, stream: TextIO, started: float) -> None:
        self._stream = stream
        self._writer = _hdrh("log").HistogramLogWriter(stream)
        self._writer.output_comment("[Logged with penstock, values in microseconds]")
        self._writer.output_log_format_version()
        date = datetime.fromtimestamp(started, UTC).isoformat(" ")
        self._writer.output_comment(f"[StartTime: {started:.3f} (seconds since epoch), {date}]")
        self._writer.output_comment(f"[BaseTime: {started:.3f} (seconds since epoch)]")
        self._writer.output_legend()

    def write(self, histogram: LatencyHistogram, start: float, end: float, tag: str = "") -> None:
        """Append one interval; `tag` distinguishes histograms that share a log.

        Raises ValueError if the tag contains a comma or white space, which would end it.
        """
        if any(character == "," or character.isspace() for character in tag):
            raise ValueError(f"a tag has no commas or white space, got {tag!r}")
        copy = _hdrh("histogram").HdrHistogram(1, _HIGHEST, _DIGITS)
        for value, n in histogram.cells():
            copy.record_value(value, n)
        copy.set_start_time_stamp(start * 1000)
        copy.set_end_time_stamp(end * 1000)
        if tag:
            self._stream.write(f"Tag={tag},")
        self._writer.output_interval_histogram(copy, max_value_unit_ratio=1000.0)


def render(summary: Summary, name: str) -> str:
    """Return the summary as one block of text, times in milliseconds, without a final newline."""
    lines = [f"{name} (ms)", f"  {'count':>6} {summary.count:>13,}"]
    for field in ("min", "max", "mean", "median", "p75", "p95", "p98", "p99", "p999"):
        lines.append(f"  {field:>6} {getattr(summary, field) * 1000:>13,.3f}")
    if summary.beyond:
        lines.append(f"  {'beyond':>6} {summary.beyond:>13,}  counted as one hour")
    if summary.negative:
        lines.append(f"  {'below':>6} {summary.negative:>13,}  counted as 0")
    return "\n".join(lines)


def _percentiles(blocks: list[_Block], count: int) -> list[int]:
    """The upper ends of the cells at the ranks of the percentiles; 0 if there are none."""
    if not blocks:
        return [0] * len(_PERCENTILES)
    ends = list(accumulate(block.count for block in blocks))
    found: list[int] = []
    cells: list[tuple[int, int]] = []
    reached: list[int] = []
    current = None
    for percent in _PERCENTILES:
        rank = max(1, int(percent * count / 100 + 0.5))
        number = min(bisect_left(ends, rank), len(blocks) - 1)
        if number != current:
            current, cells = number, blocks[number].ascending()
            before = ends[number] - blocks[number].count
            reached = list(accumulate((n for _, n in cells), initial=before))[1:]
        found.append(_upper(cells[min(bisect_left(reached, rank), len(cells) - 1)][0]))
    return found


def _upper(lowest: int) -> int:
    width = 1 if lowest < _EXACT else 1 << (lowest.bit_length() - _CELL_BITS)
    return lowest + width - 1
