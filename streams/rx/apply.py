"""Reads a stream through operators: ours are called, stock ones are lifted."""

from __future__ import annotations

from collections.abc import Sequence
from types import FunctionType
from typing import Any

from reactivex import Observable

from penstock.streams.base.errors import BuildError, not_awaited
from penstock.streams.base.validation import require_parameters
from penstock.streams.rx.lift import Last, Operator, name_of, piped, read_on
from penstock.streams.stages.stream import Stream

__all__ = ["apply"]


def apply(operators: Sequence[Operator], source: Stream[Any]) -> Any:
    """Read `source` through operators: ours are called, stock ones are lifted.

    The result is a stream, unless the last operator is a `Last`.
    """
    result: Any = source
    for position, operator in enumerate(operators):
        stream = read_on(result)
        if stream.unread or _may_be_stock(operator):
            # Slow to import, and few pipelines have a stock operator.
            from penstock.streams.rx.lifting import apply_all

            return apply_all(operators[position:], stream, _apply_unknown)
        result = piped(stream, (operator,), _apply_unknown(operator, stream))
    return result


def _may_be_stock(operator: Operator) -> bool:
    if not isinstance(operator, FunctionType):
        return not callable(operator)  # Refused in `lifting`.
    # A function made by exec has no module.
    return (operator.__module__ or "").startswith("reactivex.")


def _apply_unknown(operator: Operator, source: Stream[Any]) -> Any:
    """Apply an operator, ours or third-party, and check what it returns."""
    if _is_uncalled(operator):
        raise BuildError(f"pipe() takes operators: call {name_of(operator)}(...) to get one")
    require_parameters(operator, f"pipe({name_of(operator)})", 1, "a stream")
    result = operator(source)
    if isinstance(result, Stream) or isinstance(operator, Last):
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
