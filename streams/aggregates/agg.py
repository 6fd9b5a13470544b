"""What becomes of the values of a window: `agg.count()`, `agg.sum("amount")` and so on.

A dict of these gives a dict of results. `of` and `by` are a field, an index or a function of the
value, as keys are. A value from which they cannot be read, or where they are not what is needed,
such as None or NaN in a sum, is an error of its event.

Some names here are those of Python's own functions: import the module, `from penstock import agg`.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any, TypeVar

from penstock.streams.aggregates.aggregate import Aggregate
from penstock.streams.aggregates.collected import Collected
from penstock.streams.aggregates.distinct import Distinct
from penstock.streams.aggregates.folded import Folded
from penstock.streams.aggregates.numbers import Mean, Sum
from penstock.streams.aggregates.quantiles import Quantiles
from penstock.streams.aggregates.simple import Count, Extreme, First, Last
from penstock.streams.aggregates.top import Top
from penstock.streams.base.keys import By
from penstock.streams.base.recorded import recorded

__all__ = [
    "Aggregate",
    "count",
    "distinct",
    "first",
    "fold",
    "greatest",
    "last",
    "least",
    "list",
    "mean",
    "quantiles",
    "sum",
    "top",
]

S = TypeVar("S")


@recorded
def count() -> Aggregate[int]:
    """The number of values."""
    return Count()


@recorded
def sum(of: By[Any]) -> Aggregate[float]:
    """The sum of a number of each value: an int, and exact, if all of them are ints.

    A sum of floats is rounded once, from the exact one: it does not depend on the order in which
    they come.
    """
    return Sum(of)


@recorded
def mean(of: By[Any]) -> Aggregate[float]:
    """The mean of a number of each value, rounded once."""
    return Mean(of)


@recorded
def least(of: By[Any]) -> Aggregate[Any]:
    """The least of a number, or a text, of each value."""
    return Extreme(of, "least")


@recorded
def greatest(of: By[Any]) -> Aggregate[Any]:
    """The greatest of a number, or a text, of each value."""
    return Extreme(of, "greatest")


@recorded
def first(of: By[Any] | None = None) -> Aggregate[Any]:
    """The value, or a field of it, with the least time; of equal times, the one that came first.

    It must be plain: a text, a number, None, a list, or a dict with texts as keys.
    """
    return First(of)


@recorded
def last(of: By[Any] | None = None) -> Aggregate[Any]:
    """The value, or a field of it, with the greatest time; of equal times, the one that came last.

    It must be plain: a text, a number, None, a list, or a dict with texts as keys.
    """
    return Last(of)


@recorded
def list(of: By[Any] | None = None, most: int = 1000) -> Aggregate[builtins.list[Any]]:
    """The values, or a field of each, in order of time; of more than `most` the earliest.

    They must be plain: a text, a number, None, a list, or a dict with texts as keys.
    """
    return Collected(of, most)


@recorded
def distinct(of: By[Any]) -> Aggregate[int]:
    """The number of different values of a field: texts, numbers, None or tuples of these.

    It is exact up to 1,000. Of more it is an estimate (HyperLogLog with 4,096 registers, which are
    some 10 kB as JSON) with a standard error of 1.6 %.
    """
    return Distinct(of)


@recorded
def quantiles(of: By[Any], *shares: float) -> Aggregate[builtins.list[float]]:
    """The quantiles of a number of each value: for shares 0.5 and 0.99 the median, and what 99 % do
    not exceed.

    The relative error is less than 0.05 %. Memory: a count for each of at most 1,024 cells in
    each power of two.
    """
    return Quantiles(of, shares)


@recorded
def top(n: int, by: By[Any]) -> Aggregate[builtins.list[tuple[Any, int]]]:
    """The `n` most frequent keys, texts, numbers, None or tuples of these, each with its count.

    The counts are exact up to 10,000 different keys. With more, rare keys are forgotten, and each
    count is too low by at most a 5,000th of the number of values.
    """
    return Top(n, by)


@recorded
def fold(
    start: S, function: Callable[[S, Any], S], merge: Callable[[S, S], S] | None = None
) -> Aggregate[S]:
    """What `function(acc, value)` returns for the last value; `acc` is `start` for the first.

    `acc` is plain (a text, a number, None, a list, a dict with texts as keys) and may be changed in
    place; if the function raises, it must not have changed it. `merge(acc, other)` makes one of
    two, of which `other` is later in time; for `merge`, `start` stands for no values. It is
    needed where windows are put together: with `sliding()`, `session()` and `keep=`.
    """
    return Folded(start, function, merge)
