"""Laws that every backend keeps whose states move with partitions, for tests of your own.

Each law is a function that takes a factory of backends, which use one storage that is empty when
the law begins, each as the backend of another run; it raises `LawBroken` if they break it. With
`whole`, the laws of all other backends in `backend_laws` are to be kept too.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from math import inf
from typing import Any, cast

from penstock.streams.base.errors import CannotOpen
from penstock.streams.state.backend import Backend, KeptStage, Moved, Moving, Row, Unit
from penstock.streams.testing.limiter_laws import LawBroken

__all__ = [
    "MOVING_LAWS",
    "MovingLaw",
    "commits_nothing_of_a_partition_that_another_has_adopted",
    "has_only_adopted_partitions",
    "refuses_another_number_of_partitions",
    "restores_what_others_have_committed",
    "whole",
    "writes_all_partitions_of_a_unit_or_none",
]

MakeMoving = Callable[[], Moving]
MovingLaw = Callable[[MakeMoving], None]

_STAGE = KeptStage("one", "user", 1)
_COUNT = 2


def _check(what: str, found: object, wanted: object) -> None:
    if found != wanted:
        raise LawBroken(f"{what}: {found!r}, and not {wanted!r}")


@contextmanager
def _opened(make: MakeMoving, *partitions: int) -> Generator[Moving]:
    """A backend that is open and has adopted these."""
    backend = make()
    backend.open()
    try:
        backend.declare([_STAGE])
        for partition in partitions:
            backend.adopt(partition, _COUNT)
        yield backend
    finally:
        backend.close()


def _unit(partition: int, key: bytes, state: bytes, due: float | None = None) -> Unit:
    """A unit with a row and a mark of a partition."""
    name = f"p{partition}"
    row = key, state, 1, b"", due
    return Unit(partitions={partition: Unit({"one": [row]}, marks={name: state})})


def _states(backend: Moving) -> list[tuple[bytes, bytes, int | None]]:
    return sorted((row.key, row.state, row.partition) for row in backend.scan("one"))


def restores_what_others_have_committed(make: MakeMoving) -> None:
    """Who adopts a partition has all of it as it was committed last, deletions too, and so has who
    adopts it again."""
    with _opened(make, 0, 1) as one:
        for number in range(5):
            one.commit(_unit(0, b"%d" % number, b"7", float(number)))
        one.commit(_unit(1, b"9", b"1"))
        one.commit(Unit(partitions={0: Unit(gone={"one": [b"1", b"2"]}, marks={"p0": b"x"})}))
        with _opened(make, 0) as other:
            rows = [(b"0", b"7", 0), (b"3", b"7", 0), (b"4", b"7", 0)]
            _check("rows of partition 0", _states(other), rows)
            _check("marks_of(0)", other.marks_of(0), [("p0", b"x")])
            _check("due timers", other.due("one", 1.0, inf, 9), [(3.0, b"3"), (4.0, b"4")])
            other.commit(_unit(0, b"3", b"8"))
            other.release(0)
        one.release(0)
        one.adopt(0, _COUNT)
        rows = [(b"0", b"7", 0), (b"3", b"8", 0), (b"4", b"7", 0), (b"9", b"1", 1)]
        _check("rows after partition 0 came back", _states(one), rows)


def has_only_adopted_partitions(make: MakeMoving) -> None:
    """Nothing of a partition that was not adopted, or was released, is read or deleted."""
    with _opened(make, 0, 1) as one:
        one.commit(_unit(0, b"1", b"0", 5.0))
        one.commit(_unit(1, b"2", b"0", 6.0))
        one.release(0)
        _check("read of both", [row.key for row in one.read("one", [b"1", b"2"])], [b"2"])
        _check("due timers", one.due("one", -inf, inf, 9), [(6.0, b"2")])
        _check("marks()", one.marks(), [("p1", b"0")])
        _check("mark('p0')", one.mark("p0"), None)
        _check("size('one')", one.size("one"), (1, 2))
        one.commit(Unit(over={"one": 9.0}))
        _check("rows that were over", _states(one), [])
        one.adopt(0, _COUNT)
        _check("rows of a partition that came back", _states(one), [(b"1", b"0", 0)])


def commits_nothing_of_a_partition_that_another_has_adopted(make: MakeMoving) -> None:
    """The commit of a run whose partition was adopted by another one says so, and writes nothing;
    its other partitions go on."""
    with _opened(make, 0, 1) as old, _opened(make, 0) as new:
        both = Unit(
            partitions={**_unit(0, b"1", b"1").partitions, **_unit(1, b"2", b"1").partitions}
        )
        try:
            old.commit(both)
        except Moved as moved:
            _check("the partitions that have moved", set(moved.partitions), {0})
        else:
            raise LawBroken("a run committed a partition that another one has adopted")
        _check("rows of the unit that was refused", _states(old), [])
        old.commit(_unit(1, b"2", b"2"))
        new.commit(_unit(0, b"1", b"3"))
        _check("rows of the new run", _states(new), [(b"1", b"3", 0)])
        _check("rows of the old run", _states(old), [(b"2", b"2", 1)])


def writes_all_partitions_of_a_unit_or_none(make: MakeMoving) -> None:
    """If a part of a unit cannot be written, no partition of it is."""
    # Any: no state at all.
    nothing: Any = None
    with _opened(make, 0, 1) as one:
        good, bad = _unit(0, b"1", b"1"), Unit({"one": [(b"2", nothing, 1, b"", None)]})
        try:
            one.commit(Unit(partitions={**good.partitions, 1: bad}))
        except Exception:
            _check("rows after a commit that failed", _states(one), [])
        one.commit(Unit(partitions={**good.partitions, **_unit(1, b"2", b"2").partitions}))
    with _opened(make, 0, 1) as other:
        _check("rows of both", _states(other), [(b"1", b"1", 0), (b"2", b"2", 1)])


def refuses_another_number_of_partitions(make: MakeMoving) -> None:
    """States are in the partitions of their keys: of another number they would be in others."""
    with _opened(make, 0) as one:
        one.commit(_unit(0, b"1", b"1"))
    with _opened(make) as other:
        try:
            other.adopt(0, 3)
        except CannotOpen as error:
            said = str(error)
            _check("what the error names", [n for n in ("2", "3") if n in said], ["2", "3"])
        else:
            raise LawBroken("a partition of 3 was adopted, and states were written with 2")


class _Whole:
    """A backend of one partition, which it adopts when it is opened."""

    def __init__(self, backend: Moving) -> None:
        self._backend = backend

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def open(self) -> None:
        self._backend.open()
        self._backend.adopt(0, 1)

    def read(self, stage: str, keys: Sequence[bytes]) -> list[Row]:
        return list(_without(self._backend.read(stage, keys)))

    def scan(self, stage: str) -> Iterator[Row]:
        return _without(self._backend.scan(stage))

    def commit(self, unit: Unit) -> None:
        of_it = Unit(unit.rows, unit.gone, unit.marks)
        try:
            self._backend.commit(
                Unit(parts=unit.parts, over=unit.over, partitions={0: of_it}, durable=unit.durable)
            )
        except Moved as moved:
            raise CannotOpen("Another run has opened it.") from moved


def _without(rows: Iterable[Row]) -> Iterator[Row]:
    return (Row(*row) for row in rows)


def whole(backend: Moving) -> Backend:
    """The backend as one that has one partition, and does not move."""
    return cast(Backend, _Whole(backend))


MOVING_LAWS: tuple[MovingLaw, ...] = (
    restores_what_others_have_committed,
    has_only_adopted_partitions,
    commits_nothing_of_a_partition_that_another_has_adopted,
    writes_all_partitions_of_a_unit_or_none,
    refuses_another_number_of_partitions,
)
