"""What operators are to `pipe`: ours, ours with a stock one beside it, or the last of a pipe.

Any other is lifted: a stock `reactivex` operator runs in a stream without losing demand.

A lifted operator is fed one event at a time. One that answers at once has its outputs inherit the
event that made them. One that holds keeps its inputs unfinished until a later output is finished,
at most `hold` of them. The kinds of operators are listed in `penstock.streams.rx.table`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, TypeVar, cast

from reactivex import Observable

from penstock.streams.base.errors import BuildError, describe
from penstock.streams.base.recorded import call_of
from penstock.streams.stages.stream import Stream

__all__ = [
    "HOLD",
    "Last",
    "Operator",
    "WithStock",
    "as_ours",
    "check_demand",
    "name_of",
    "on_stream",
    "piped",
    "read_on",
]

A = TypeVar("A")
B = TypeVar("B")
S = TypeVar("S")
R = TypeVar("R")

HOLD = 1024
"""How many unfinished inputs a holding operator may keep unless `lift(hold=)` says otherwise."""

Operator = Callable[[Any], Any]


class WithStock:
    """An operator of this library, and the stock one that does the same where there is no demand.

    That is behind windows, which lose what is not read as it comes, and inside them.
    """

    def __init__(self, operator: Operator, stock: Operator) -> None:
        self._operator = operator
        self.stock = stock

    def __call__(self, source: Stream[Any], /) -> Any:
        # A plain Observable has no demand either.
        operator = self._operator if isinstance(source, Stream) else self.stock  # pyright: ignore[reportUnnecessaryIsInstance]
        return operator(source)


class Last:
    """An operator whose result is not a stream, and which is therefore the last of a pipe."""

    def __init__(self, operator: Operator) -> None:
        self._operator = operator

    def __call__(self, source: Stream[Any], /) -> Any:
        return self._operator(source)


def on_stream(operator: Callable[[S], R], name: str = "") -> Callable[[S], R]:
    """Wrap an operator of this library that has no stock one for a plain Observable.

    The result raises BuildError for a source without demand. `name` is the operator's, unless the
    function that made it has it.
    """
    name = name or name_of(operator)

    @wraps(operator)
    def checked(source: S) -> R:
        check_demand(name, source)
        return operator(source)

    # Errors name an operator by the function that made it.
    checked.__qualname__ = f"{name}.{operator.__name__}"
    return checked


def check_demand(operator: str, source: object) -> None:
    """Raise BuildError for a source that is not a stream with demand."""
    if isinstance(source, Stream):
        return
    if isinstance(source, Observable):
        raise BuildError(
            f"{operator} needs demand, which a plain Observable does not have: read it through "
            "Flowable.of(observable, on_overflow=...)"
        )
    raise BuildError(f"{operator} reads a stream, not {describe(source, 80)}")


def as_ours(operator: Operator) -> Operator:
    """A stock operator with the type of ours: `pipe` lifts it."""
    return operator


def piped(source: Stream[Any], operators: Sequence[Operator], result: Any) -> Any:
    """The result of `operators` on `source`, with a record of these on it, if it is a stream.

    An operator of the user's that pipes through others leaves the records of these.
    """
    if isinstance(result, Stream) and result is not source:
        stream: Any = cast(Any, result)
        is_own = len(operators) == 1 and call_of(operators[0]) is None
        if not is_own or (stream.piped is None and call_of(stream) is None):
            stream.piped = source, tuple(operators)
    # Its element type is unknown here.
    return result  # pyright: ignore[reportUnknownVariableType]


def read_on(result: Any) -> Stream[Any]:
    """The stream that the operators so far have made; an error if it is none."""
    if isinstance(result, Stream):
        # Its element type is unknown here.
        return result  # pyright: ignore[reportUnknownVariableType]
    raise BuildError(
        f"an operator that returns no stream is the last of a pipe(): it has returned "
        f"{describe(result, 80)}"
    )


def name_of(operator: Operator) -> str:
    """The name of the function that returned it."""
    return str(getattr(operator, "__qualname__", type(operator).__name__)).split(".")[0]
