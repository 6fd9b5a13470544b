"""Lifting: runs any stock `reactivex` operator in a Flowable without losing demand.

A lifted operator is fed one event at a time. One that answers at once has its outputs inherit the
event that made them. One that holds keeps its inputs unfinished until a later output is finished,
at most `hold` of them. The kinds of operators are listed in `penstock.streams.rx.table`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from types import FunctionType
from typing import Any, TypeVar

from reactivex import Observable

from penstock.streams.errors import BuildError, describe, not_awaited
from penstock.streams.flowable import Flowable
from penstock.streams.validation import require_count, require_parameters

__all__ = [
    "HOLD",
    "Last",
    "Operator",
    "WithStock",
    "apply",
    "apply_unknown",
    "as_ours",
    "check_demand",
    "lift",
    "name_of",
    "on_stream",
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

    def __call__(self, source: Flowable[Any], /) -> Flowable[Any]:
        # A plain Observable has no demand either.
        operator = self._operator if isinstance(source, Flowable) else self.stock  # pyright: ignore[reportUnnecessaryIsInstance]
        stream: Flowable[Any] = operator(source)
        return stream


class Last:
    """An operator whose result is no stream, and which is therefore the last of a pipe."""

    def __init__(self, operator: Operator) -> None:
        self._operator = operator

    def __call__(self, source: Flowable[Any], /) -> Any:
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
    if isinstance(source, Flowable):
        return
    if isinstance(source, Observable):
        raise BuildError(
            f"{operator} needs demand, which a plain Observable does not have: read it through "
            "Flowable.of(observable, on_overflow=...)"
        )
    raise BuildError(f"{operator} reads a stream, not {describe(source, 80)}")


def as_ours(operator: Operator) -> Callable[[Flowable[Any]], Flowable[Any]]:
    """A stock operator with the type of ours: `pipe` lifts it."""
    stock: Any = operator
    ours: Callable[[Flowable[Any]], Flowable[Any]] = stock
    return ours


def lift(
    operator: Callable[[Flowable[A]], Observable[B]],
    *,
    holds: bool | None = None,
    hold: int = HOLD,
) -> Callable[[Flowable[A]], Flowable[B]]:
    """Declare how your own operator answers, or let a stock one hold more.

    `holds=False`: every output leaves in the call that feeds its input. `holds=True`, and any
    operator that the table does not know: an input may be answered later, and at most `hold`
    inputs are kept unfinished; one more with nothing emitted and no timer pending is the
    error HoldExceeded.
    """
    require_count("lift", hold=hold)

    def lifted(source: Flowable[A]) -> Flowable[B]:
        from penstock.streams.rx.lifting import lift_one

        return lift_one(operator, source, holds, hold)

    return lifted


def apply(operators: Sequence[Operator], source: Flowable[Any]) -> Any:
    """Read `source` through operators: ours are called, stock ones are lifted.

    The result is a stream, unless the last operator is a `Last`.
    """
    result: Any = source
    for position, operator in enumerate(operators):
        stream = read_on(result)
        if stream.unread or _may_be_stock(operator):
            # Slow to import, and few pipelines have a stock operator.
            from penstock.streams.rx.lifting import apply_all

            return apply_all(operators[position:], stream)
        result = apply_unknown(operator, stream)
    return result


def read_on(result: Any) -> Flowable[Any]:
    """What the operators so far have made, which must be a stream where another follows."""
    if isinstance(result, Flowable):
        # Its element type is unknown here.
        return result  # pyright: ignore[reportUnknownVariableType]
    raise BuildError(
        f"an operator that returns no stream is the last of a pipe(): it has returned "
        f"{describe(result, 80)}"
    )


def _may_be_stock(operator: Operator) -> bool:
    if not isinstance(operator, FunctionType):
        return not callable(operator)  # Refused in `lifting`.
    # A function made by exec has no module.
    return (operator.__module__ or "").startswith("reactivex.")


def apply_unknown(operator: Operator, source: Flowable[Any]) -> Any:
    """Apply an operator, ours or third-party, and check what it returns."""
    if _is_uncalled(operator):
        raise BuildError(f"pipe() takes operators: call {name_of(operator)}(...) to get one")
    require_parameters(operator, f"pipe({name_of(operator)})", 1, "a stream")
    result = operator(source)
    if isinstance(result, Flowable) or isinstance(operator, Last):
        # Its element type is unknown here.
        return result  # pyright: ignore[reportUnknownVariableType]
    if isinstance(result, Observable):
        from penstock.streams.rx.lifting import lift_one

        return lift_one(operator, source)
    not_awaited(result)
    raise BuildError(
        f"pipe() takes operators, which return a stream; {name_of(operator)} returned "
        f"{type(result).__name__}. Put your own function into one, such as "
        f"adaptive_flat_map({name_of(operator)})"
    )


def _is_uncalled(operator: Operator) -> bool:
    """Whether it is one of this library's functions that return operators, not yet called."""
    if not isinstance(operator, FunctionType):
        return False
    return (operator.__module__ or "").startswith(
        "penstock.operators."
    ) and "." not in operator.__qualname__


def name_of(operator: Operator) -> str:
    """The name of the function that returned it."""
    return str(getattr(operator, "__qualname__", type(operator).__name__)).split(".")[0]
