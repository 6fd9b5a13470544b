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
from operator import mul
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

# If there are more counts than this, they are merged by cell; there are far fewer cells.
_MOST_COUNTS = 32_768
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

    Time: two passes of C code. Memory: 16,384 values, and at most 49,152 counts: one for each cell
    that is not empty, and for fractions of the microseconds below 1,024.
    """

    __slots__ = ("_cells", "_recent")

    def __init__(self) -> None:
        self._recent = array("f")
        self._cells: Counter[float] = Counter()

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
        other._count()
        if times == 1:
            self._cells.update(other._cells)
        else:
            self._cells.update({value: n * times for value, n in other._cells.items()})

    def reset(self) -> None:
        """Forget everything recorded."""
        del self._recent[:]
        self._cells.clear()

    def cells(self) -> list[tuple[int, int]]:
        """Return (lowest value of a cell in microseconds, count) in ascending order."""
        self._count()
        self._put_together()
        counts = dict(self._cells)
        # Those beyond the range are in its first and in its last cell.
        for value, cell in ((_BELOW, 0.0), (_BEYOND, float(_LAST_CELL))):
            if n := counts.pop(value, 0):
                counts[cell] = counts.get(cell, 0) + n
        return [(int(value), n) for value, n in sorted(counts.items())]

    def snapshot(self) -> Summary:
        """Summarise what was recorded since the last reset. Time: O(cells)."""
        cells = self.cells() or [(0, 0)]
        counts = [n for _, n in cells]
        # The middle of a cell is half its width above its lowest value.
        half = _CELL_BITS + 1
        middles = [
            value if value < _EXACT else value + (1 << value.bit_length() - half)
            for value, _ in cells
        ]
        count = sum(counts)
        # Sums of ints, hence exact: the difference below cannot lose what matters.
        total = sum(map(mul, middles, counts))
        squares = sum(map(mul, map(mul, middles, middles), counts))
        of = max(count, 1)
        median, p75, p95, p98, p99, p999 = _percentiles(cells, counts)
        return Summary(
            count=count,
            min=cells[0][0] / 1e6,
            max=_upper(cells[-1][0]) / 1e6,
            mean=total / of / 1e6,
            median=median / 1e6,
            p75=p75 / 1e6,
            p95=p95 / 1e6,
            p98=p98 / 1e6,
            p99=p99 / 1e6,
            p999=p999 / 1e6,
            stddev=sqrt((of * squares - total * total) / (of * of)) / 1e6,
            beyond=self._cells[_BEYOND],
            negative=self._cells[_BELOW],
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
        self._cells.update(self._recent)
        del self._recent[:]
        if len(self._cells) > _MOST_COUNTS:
            self._put_together()

    def _put_together(self) -> None:
        """Merge the counts into one for each cell, one for all below, and one for all beyond."""
        counts, exact = self._cells.items(), _EXACT // 2
        # From there on the rest of a value is a cell already.
        cells = {value: n for value, n in counts if exact <= value <= _LAST_CELL}
        for value, n in [item for item in counts if not exact <= item[0] <= _LAST_CELL]:
            # NaN, too, counts as beyond all cells.
            cell = floor(max(value, _BELOW) + 0.5) if value < exact else _BEYOND
            cells[cell] = cells.get(cell, 0) + n
        self._cells = Counter(cells)


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


def _percentiles(cells: list[tuple[int, int]], counts: list[int]) -> list[int]:
    ranks = [max(1, int(percent * sum(counts) / 100 + 0.5)) for percent in _PERCENTILES]
    reached = list(accumulate(counts))
    # Nothing recorded: rank 1 is never reached, and the one cell is 0.
    return [_upper(cells[min(bisect_left(reached, rank), len(cells) - 1)][0]) for rank in ranks]


def _width(value: int) -> int:
    return 1 if value < _EXACT else 1 << (value.bit_length() - _CELL_BITS)


def _upper(lowest: int) -> int:
    return lowest + _width(lowest) - 1
