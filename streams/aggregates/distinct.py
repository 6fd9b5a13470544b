"""The number of different values: exact while there are few, then estimated by HyperLogLog.

Sources: P. Flajolet, E. Fusy, O. Gandouet, F. Meunier, "HyperLogLog: the analysis of a near-optimal
cardinality estimation algorithm" (2007); for the estimate O. Ertl, "New cardinality estimation
algorithms for HyperLogLog sketches" (2017), algorithm 6, which has no bias at any size.
"""

from __future__ import annotations

from hashlib import blake2b
from math import inf, log, sqrt
from typing import Any

from penstock.streams.aggregates.aggregate import BaseAggregate
from penstock.streams.aggregates.texts import text_reader
from penstock.streams.base.keys import By

__all__ = ["Distinct"]

_EXACT = 1000

# The first bits of a hash choose a register, which has the greatest number of the first set bit of
# the others.
_BITS = 12
_REGISTERS = 1 << _BITS
_OTHERS = 64 - _BITS


class Distinct(BaseAggregate[int]):
    """The number of different texts, numbers and so on.

    They are a dict with each as a key, and from the 1,001st on a list of 4,096 registers.
    """

    def __init__(self, of: By[Any]) -> None:
        super().__init__(text_reader(of, "distinct"))

    def start(self) -> Any:
        return {}

    def put(self, acc: Any, read: Any, time: float) -> Any:
        if acc.__class__ is dict:
            acc[read] = None
            return _registers(acc) if len(acc) > _EXACT else acc
        _register(acc, read)
        return acc

    def merge(self, acc: Any, other: Any, /) -> Any:
        if other.__class__ is dict:
            for text in other:
                acc = self.put(acc, text, 0.0)
            return acc
        if acc.__class__ is dict:
            acc = _registers(acc)
        acc[:] = map(max, acc, other)
        return acc

    def result(self, acc: Any, /) -> int:
        return len(acc) if acc.__class__ is dict else round(_estimate(acc))


def _registers(texts: dict[str, None]) -> list[int]:
    registers = [0] * _REGISTERS
    for text in texts:
        _register(registers, text)
    return registers


def _register(registers: list[int], text: str) -> None:
    digest = blake2b(text.encode(), digest_size=8).digest()
    number = int.from_bytes(digest, "big")
    at = number >> _OTHERS
    first = _OTHERS - (number & (1 << _OTHERS) - 1).bit_length() + 1
    if first > registers[at]:
        registers[at] = first


def _estimate(registers: list[int]) -> float:
    counts = [0] * (_OTHERS + 2)
    for value in registers:
        counts[value] += 1
    sum_ = _REGISTERS * _tau(1 - counts[_OTHERS + 1] / _REGISTERS)
    for count in reversed(counts[1 : _OTHERS + 1]):
        sum_ = (sum_ + count) / 2
    sum_ += _REGISTERS * _sigma(counts[0] / _REGISTERS)
    return _REGISTERS * _REGISTERS / (2 * log(2) * sum_)


def _sigma(x: float) -> float:
    """The sum of x and of x ** (2 ** k) * 2 ** (k - 1) for k = 1, 2, ..."""
    if x == 1:
        return inf
    power, sum_, before = 1.0, x, -1.0
    while sum_ != before:
        x *= x
        before = sum_
        sum_ += x * power
        power *= 2
    return sum_


def _tau(x: float) -> float:
    """A third of 1 - x without the sum of (1 - x ** (2 ** -k)) ** 2 * 2 ** -k for k = 1, 2, ..."""
    if x in (0, 1):
        return 0.0
    power, sum_, before = 1.0, 1 - x, -1.0
    while sum_ != before:
        x = sqrt(x)
        before = sum_
        power /= 2
        sum_ -= (1 - x) ** 2 * power
    return sum_ / 3
