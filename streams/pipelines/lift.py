"""`lift`: how an operator of the user's own, or a stock one, is run without losing demand."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

from reactivex import Observable

from penstock.streams.base.recorded import recorded
from penstock.streams.base.validation import require_count
from penstock.streams.pipelines.flowable import Flowable
from penstock.streams.rx.lift import HOLD

__all__ = ["lift"]

A = TypeVar("A")
B = TypeVar("B")


@recorded
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

        return cast("Flowable[B]", lift_one(operator, source, holds, hold))

    return lifted
