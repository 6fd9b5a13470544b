"""What an aggregate is, and the base class of ours."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from penstock.streams.base.errors import BuildError, add_note, describe
from penstock.streams.base.keys import By, key_function, key_name

__all__ = ["Aggregate", "BaseAggregate", "can_merge", "reader", "require_aggregate"]

R_co = TypeVar("R_co", covariant=True)


class Aggregate(Protocol[R_co]):
    """What becomes of the values of a window; a user's own has these four methods.

    What is known of the values so far, `acc`, is plain: texts, numbers, None, lists of these and
    dictionaries with texts as keys, so that it is the same after it was JSON. If a method raises,
    it leaves `acc` as it was.
    """

    @abstractmethod
    def start(self) -> Any:
        """What is known of no values: a new object, if it can be changed."""

    @abstractmethod
    def add(self, acc: Any, value: Any, time: float, /) -> Any:
        """What is known with one more value, whose time is in seconds since 1970; it may be `acc`,
        changed."""

    @abstractmethod
    def merge(self, acc: Any, other: Any, /) -> Any:
        """What is known of the values of both, which may be `acc`, changed. `other`, which is later
        in time, stays as it is."""

    @abstractmethod
    def result(self, acc: Any, /) -> R_co:
        """The result for the values so far, at least one; no part of it may be one of `acc` that
        is changed later."""


def _nothing(value: Any) -> Any:
    return None


class BaseAggregate(Generic[R_co]):
    """Adds in two steps: everything that can fail is in `read`, so that of several aggregates
    either all have an event or none.

    `may_fail` says that `put` can raise nevertheless, and then leaves `acc` as it was.
    """

    may_fail: ClassVar[bool] = False

    def __init__(self, read: Callable[[Any], Any] = _nothing) -> None:
        self.read = read
        """Returns what of a value is added."""

    def start(self) -> Any:
        raise NotImplementedError

    def put(self, acc: Any, read: Any, time: float) -> Any:
        """What is known with what was read of one more value."""
        raise NotImplementedError

    def add(self, acc: Any, value: Any, time: float, /) -> Any:
        return self.put(acc, self.read(value), time)

    def merge(self, acc: Any, other: Any, /) -> Any:
        raise NotImplementedError

    def result(self, acc: Any, /) -> R_co:
        raise NotImplementedError


_METHODS = ("start", "add", "merge", "result")


def require_aggregate(value: object, what: str) -> None:
    """Raise BuildError unless `value` has the methods of an aggregate."""
    if isinstance(value, type):
        raise BuildError(f"{what}: an aggregate is needed, and {value.__name__} is a class of such")
    missing = [name for name in _METHODS if not callable(getattr(value, name, None))]
    if missing:
        raise BuildError(
            f"{what}: {describe(value)} is not an aggregate, as it has no {', '.join(missing)}. "
            'Use one such as agg.count() or agg.sum("amount"), or a dict of them'
        )


def can_merge(aggregate: Aggregate[Any]) -> bool:
    """Whether what is known of the parts of a window can be put together."""
    return bool(getattr(aggregate, "can_merge", True))


def reader(of: By[Any], name: str) -> Callable[[Any], Any]:
    """Reads the field `of` for the aggregate `name`, which its errors have in a note."""
    read = key_function(of)
    note = f"in {name}({key_name(of)})"

    def read_noted(value: Any) -> Any:
        try:
            return read(value)
        except Exception as error:
            add_note(error, note)
            raise

    return read_noted
