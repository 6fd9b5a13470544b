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
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import import_module
from itertools import accumulate, repeat
from math import floor, sqrt
from operator import mul
from struct import pack, unpack
from typing import Any, TextIO

from penstock.streams.base.extras import missing_extra

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
_BELOW = -1.0

# A float32 has 23 bits after its first one. Clearing the last 13, one whole byte and 5 bits of the
# next, counted from the least significant, leaves the 11 binary digits that identify an HDR cell.
_CLEARED = 13
_CLEAR_5_BITS = bytes(byte & 0b1110_0000 for byte in range(256))
_LAST, _NEXT = (0, 1) if sys.byteorder == "little" else (3, 2)


def _key(value: float) -> int:
    """What is counted of a float32: its sign, its power of two, and ten digits after the first."""
    bits: int = unpack("I", pack("f", value))[0]
    return bits >> _CLEARED


_KEY_BITS = 10
_FIRST_KEY, _LAST_KEY = _key(_EXACT), _key(_LAST_CELL)
_FIRST_POWER = _FIRST_KEY >> _KEY_BITS


# A number, a sum and a sum of squares, as ints, hence exact: no difference between them can lose
# what matters.
_Sums = tuple[int, int, int]


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

    __slots__ = ("_beyond", "_blocks", "_fresh", "_negative", "_recent")

    def __init__(self) -> None:
        self._recent = array("f")
        # Counts by key, not yet merged by cell; then by cell, in blocks of about a thousand.
        self._fresh: Counter[int] = Counter()
        self._blocks: dict[int, _Block] = {}
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
        for block in other._blocks.values():
            counts = map(mul, block.cells.values(), repeat(times))
            n, total, squares = block.sums()
            sums = n * times, total * times, squares * times
            self._block(next(iter(block.cells))).add(block.cells, counts, sums)
        self._beyond += other._beyond * times
        self._negative += other._negative * times

    def reset(self) -> None:
        """Forget everything recorded."""
        del self._recent[:]
        self._fresh.clear()
        self._blocks.clear()
        self._beyond = self._negative = 0

    def cells(self) -> list[tuple[int, int]]:
        """Return (lowest value of a cell in microseconds, count) in ascending order."""
        self._put_together()
        return [cell for _, block in sorted(self._blocks.items()) for cell in block.ascending()]

    def snapshot(self) -> Summary:
        """Summarise what was recorded since the last reset."""
        self._put_together()
        blocks = [block for _, block in sorted(self._blocks.items())]
        counts: list[int] = []
        total = squares = 0
        for block in blocks:
            n, of_block, squares_of_block = block.sums()
            counts.append(n)
            total += of_block
            squares += squares_of_block
        count = sum(counts)
        of = max(count, 1)
        median, p75, p95, p98, p99, p999 = _percentiles(blocks, counts)
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

        Floats with few digits have hashes that end alike, so a table of them is several times as
        slow as one of the ints that are left when the cleared bits are shifted out, all at once.
        """
        octets = bytearray(self._recent)
        octets[_LAST::4] = bytes(len(self._recent))
        octets[_NEXT::4] = octets[_NEXT::4].translate(_CLEAR_5_BITS)
        del self._recent[:]
        shifted = int.from_bytes(octets, sys.byteorder) >> _CLEARED
        self._fresh.update(array("I", shifted.to_bytes(len(octets), sys.byteorder)))
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
        fresh = self._fresh
        keys = sorted(fresh)
        start, end = bisect_left(keys, _FIRST_KEY), bisect_right(keys, _LAST_KEY)
        others = keys[:start] + keys[end:]
        while start < end:
            # From there on a key is that of one cell, whose first digit it does not have.
            power = keys[start] >> _KEY_BITS
            until = bisect_left(keys, power + 1 << _KEY_BITS, start, end)
            part = keys[start:until]
            less, shift = power - 1 << _KEY_BITS, power - _FIRST_POWER + 1
            cells = [key - less << shift for key in part]
            self._block(cells[0]).add(cells, map(fresh.__getitem__, part))
            start = until
        small: dict[int, int] = {}
        beyond = 0
        values = array("f", array("I", [key << _CLEARED for key in others]).tobytes())
        for value, n in zip(values, map(fresh.__getitem__, others), strict=True):
            if value < _EXACT:
                cell = floor(max(value, _BELOW) + 0.5)
                if cell < 0:
                    self._negative += n
                    cell = 0
                small[cell] = small.get(cell, 0) + n
            else:
                # NaN, too, counts as beyond all cells.
                beyond += n
        if small:
            self._block(0).add(small, small.values())
        if beyond:
            self._beyond += beyond
            self._block(_LAST_CELL).add([_LAST_CELL], [beyond])
        fresh.clear()

    def _block(self, cell: int) -> _Block:
        """The block of a cell."""
        number = max(_CELL_BITS, cell.bit_length())
        block = self._blocks.get(number)
        if block is None:
            block = self._blocks[number] = _Block()
        return block


class _Block:
    """The cells of one microsecond, which are 2,048, or the 1,024 cells of the values with as many
    binary digits."""

    __slots__ = ("_sums", "cells")

    def __init__(self) -> None:
        self.cells: dict[int, int] = {}
        """The count of each cell by its lowest value."""
        # None if counts have changed since.
        self._sums: _Sums | None = 0, 0, 0

    def add(self, cells: Iterable[int], counts: Iterable[int], sums: _Sums | None = None) -> None:
        """Add the counts of different cells; `sums` are those of what is added, if known."""
        if sums is not None:
            n, total, squares = self.sums()
            sums = n + sums[0], total + sums[1], squares + sums[2]
        self._sums = sums
        mine = self.cells
        if mine:
            for cell, n in zip(cells, counts, strict=True):
                mine[cell] = mine.get(cell, 0) + n
        else:
            mine.update(zip(cells, counts, strict=True))

    def sums(self) -> _Sums:
        """The number of values, their sum and the sum of their squares, each value as the middle of
        its cell."""
        if self._sums is None:
            # The middle of a cell is half its width above its lowest value.
            half = _width(min(self.cells)) // 2
            middles, counts = [cell + half for cell in self.cells], self.cells.values()
            by_count = list(map(mul, middles, counts))
            self._sums = sum(counts), sum(by_count), sum(map(mul, by_count, middles))
        return self._sums

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


def _percentiles(blocks: list[_Block], counts: list[int]) -> list[int]:
    """The upper ends of the cells at the ranks of the percentiles; 0 if there are none."""
    if not blocks:
        return [0] * len(_PERCENTILES)
    ends = list(accumulate(counts))
    count = ends[-1]
    found: list[int] = []
    cells: list[tuple[int, int]] = []
    reached: list[int] = []
    current = None
    for percent in _PERCENTILES:
        rank = max(1, int(percent * count / 100 + 0.5))
        number = min(bisect_left(ends, rank), len(blocks) - 1)
        if number != current:
            current, cells = number, blocks[number].ascending()
            before = ends[number] - counts[number]
            reached = list(accumulate((n for _, n in cells), initial=before))[1:]
        found.append(_upper(cells[min(bisect_left(reached, rank), len(cells) - 1)][0]))
    return found


def _upper(lowest: int) -> int:
    return lowest + _width(lowest) - 1


def _width(lowest: int) -> int:
    """The width of a cell, alike for all those of a block."""
    return 1 if lowest < _EXACT else 1 << (lowest.bit_length() - _CELL_BITS)
