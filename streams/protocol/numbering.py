"""The numbers of the stages of a pipeline, over all streams that it reads.

A stage has the next number after the stage above it, or after the stages of the other streams
that it reads: theirs come first. So a pipeline that reads one stream counts from 1 at its source.
Streams that read one shared stream have the same stages down to that, which are numbered once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from penstock.streams.protocol.stage_info import StageInfo

__all__ = ["all_stages", "numbered_below", "with_above"]

_Column = tuple[StageInfo, ...]


def all_stages(stages: Iterable[StageInfo]) -> Iterator[StageInfo]:
    """The stages, and before each those of the other streams that it reads, in the order of their
    numbers; each of them once."""
    return (stage for stage, _ in with_above(stages))


def with_above(stages: Iterable[StageInfo]) -> Iterator[tuple[StageInfo, list[int]]]:
    """As `all_stages`, each with the numbers of the stages that it reads; `stages` read each
    other in their order."""
    return _unseen(stages, set())


def _unseen(stages: Iterable[StageInfo], seen: set[int]) -> Iterator[tuple[StageInfo, list[int]]]:
    above: list[int] = []
    for stage in stages:
        if stage.number not in seen:
            seen.add(stage.number)
            for column in stage.inputs:
                yield from _unseen(column, seen)
            yield stage, above + [column[-1].number for column in stage.inputs]
        above = [stage.number]


def numbered_below(info: StageInfo, above: Sequence[StageInfo]) -> StageInfo:
    """A stage that reads other streams, with its number below the stages `above`, source first, and
    with the numbers of the stages of these streams."""
    known: dict[int, _Column] = {}
    _find_shared(tuple(above), known)
    numbering = _Numbering(above[-1].number, known)
    inputs = tuple(numbering.numbered(column) for column in info.inputs)
    return info._replace(number=numbering.last + 1, inputs=inputs)


def _start(column: _Column, known: dict[int, _Column]) -> int:
    """How many of the stages have their numbers: those down to the last shared one."""
    for at in range(len(column), 0, -1):
        if id(column[at - 1].shared) in known:
            return at
    return 0


def _find_shared(column: _Column, known: dict[int, _Column]) -> None:
    """Note the stages down to each shared one, by the identity of what is shared."""
    for at, info in enumerate(column[_start(column, known) :], _start(column, known) + 1):
        for other in info.inputs:
            _find_shared(other, known)
        if info.shared is not None:
            known[id(info.shared)] = column[:at]


class _Numbering:
    """Gives stages the numbers after `last`, unless they are known."""

    def __init__(self, last: int, known: dict[int, _Column]) -> None:
        self.last = last
        self._known = known

    def numbered(self, column: _Column) -> _Column:
        """The stages with their numbers."""
        start = _start(column, self._known)
        stages = list(self._known[id(column[start - 1].shared)]) if start else []
        for info in column[start:]:
            inputs = tuple(self.numbered(other) for other in info.inputs)
            self.last += 1
            stages.append(info._replace(number=self.last, inputs=inputs))
            if info.shared is not None:
                self._known[id(info.shared)] = tuple(stages)
        return tuple(stages)
