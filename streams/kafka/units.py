"""Records that end together, with the parts that were made of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter

from penstock.streams.delivery.commit import Part
from penstock.streams.kafka.offsets.partition import Partition, Token

__all__ = ["Unit", "Units", "by_partition", "fitting"]

_IS_OURS = attrgetter("partition.is_ours")


class Unit:
    """Records, `open` of them not finished, and `parts`, each made of some of them.

    A part that was made of several records must not be written without any of them being finished,
    so these are one unit.
    """

    __slots__ = ("is_dropped", "open", "parts", "tokens")

    def __init__(self, token: Token) -> None:
        self.tokens = [token]
        self.open = 1
        self.parts: list[Part[Token]] = []
        self.is_dropped = False
        """Whether one of them was returned, so that none is finished."""

    @property
    def is_ours(self) -> bool:
        """Whether no partition of it has gone to another reader."""
        return all(map(_IS_OURS, self.tokens))


class Units:
    """The units of records that are not committed yet."""

    def __init__(self) -> None:
        self._of: dict[Token, Unit] = {}

    def of(self, token: Token) -> Unit:
        """The unit of a record."""
        unit = self._of.get(token)
        if unit is None:
            unit = self._of[token] = Unit(token)
        return unit

    def joined(self, tokens: Sequence[Token]) -> Unit:
        """The unit of some records, which are in one from now on."""
        if len(tokens) == 1:
            return self.of(tokens[0])
        first, *others = {self.of(token): None for token in tokens}
        for other in others:
            first.tokens += other.tokens
            first.open += other.open
            first.parts += other.parts
            first.is_dropped |= other.is_dropped
            for token in other.tokens:
                self._of[token] = first
        return first

    def leave(self, token: Token) -> Unit:
        """The record is not in its unit any more, which is returned."""
        unit = self.of(token)
        unit.tokens.remove(token)
        del self._of[token]
        return unit

    def forget(self, unit: Unit) -> None:
        """The unit is committed, or is not ours any more."""
        for token in unit.tokens:
            self._of.pop(token, None)


def fitting(units: list[Unit]) -> tuple[list[Unit], list[Unit]]:
    """The `units` whose records can be committed as finished, and the units that must wait.

    All that is finished must fit into the metadata of the commit, or a restart would repeat it.
    """
    chosen = units
    for _ in range(3):
        full = _too_full(chosen)
        if not full:
            break
        for partition in full:
            chosen = _most_that_fit(chosen, partition)
    else:
        # Units of several partitions: each leaves too little room in another.
        while full := _too_full(chosen):
            chosen = [unit for unit in chosen if full.isdisjoint(_partitions(unit))]
    if len(chosen) == len(units):
        return units, []
    taken = set(chosen)
    return chosen, [unit for unit in units if unit not in taken]


def _too_full(units: list[Unit]) -> set[Partition]:
    """The partitions for which these do not fit."""
    found = by_partition(units).items()
    return {partition for partition, offsets in found if partition.mark_after(offsets) is None}


def by_partition(units: Iterable[Unit]) -> dict[Partition, set[int]]:
    """The offsets of their records."""
    found: dict[Partition, set[int]] = {}
    for unit in units:
        for token in unit.tokens:
            offsets = found.get(token.partition)
            if offsets is None:
                offsets = found[token.partition] = set()
            offsets.add(token.offset)
    return found


def _partitions(unit: Unit) -> Iterable[Partition]:
    return (token.partition for token in unit.tokens)


def _most_that_fit(units: list[Unit], partition: Partition) -> list[Unit]:
    """The units that are not of this partition, and as many of its own, the first, as fit."""
    own = [unit for unit in units if partition in _partitions(unit)]
    own.sort(key=lambda unit: min(t.offset for t in unit.tokens if t.partition is partition))
    low, high = 0, len(own)
    while low < high:
        middle = (low + high + 1) // 2
        if partition.mark_after(by_partition(own[:middle])[partition]) is not None:
            low = middle
        else:
            high = middle - 1
    left_out = set(own[low:])
    return [unit for unit in units if unit not in left_out]
