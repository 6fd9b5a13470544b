"""Take any stock `reactivex` operator into a Flowable without losing demand.

A lifted operator is fed one event at a time. One that answers at once has its outputs inherit
the event that made them. One that holds keeps its inputs unfinished until a later output is
finished, at most `hold` of them. What kind an operator is stands in `streams.lift_table`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from reactivex import Observable

from streams.errors import BuildError
from streams.flowable import Flowable
from streams.holding import LiftedHolding
from streams.lift_table import Kind
from streams.lifted import Lifted
from streams.native import native_stage
from streams.recognise import Part, recognise
from streams.run import Run
from streams.stage import StageInfo, Subscriber

__all__ = ["HOLD", "apply", "lift"]

A = TypeVar("A")
B = TypeVar("B")

HOLD = 1024
"""How many unfinished inputs a holding operator may keep unless `lift(hold=)` says otherwise."""

Operator = Callable[[Any], Any]

# What emits the values of the streams that it is given, or that its function makes of them.
_READING = ("flat_map", "flat_map_indexed")


def lift(
    operator: Callable[[Observable[A]], Observable[B]],
    *,
    holds: bool | None = None,
    hold: int = HOLD,
) -> Callable[[Flowable[A]], Flowable[B]]:
    """Speak for an operator of your own, or let a stock one hold more.

    `holds=False`: every output leaves in the call that feeds its input. `holds=True`, and any
    operator that the table does not know: an input may be answered later, and at most `hold`
    inputs are kept unfinished; one more with nothing emitted and no timer pending is the
    error HoldExceeded.
    """
    if isinstance(hold, bool) or hold < 1:
        raise BuildError(f"lift(hold={hold!r}): at least 1 input must fit")

    def lifted(source: Flowable[A]) -> Flowable[B]:
        parts = recognise(operator)
        if holds is not None:
            kind = Kind.HOLDS if holds else Kind.AT_ONCE
            parts = [Part(_names(parts) or None, kind, "", "", operator, {})]
        return _lift_chain(parts, source, hold)

    return lifted


def apply(operators: Sequence[Operator], source: Flowable[Any]) -> Flowable[Any]:
    """Read `source` through operators: ours are called, stock ones are lifted."""
    stream = source
    windows: list[Part] = []
    for operator in operators:
        parts = recognise(operator)
        if len(parts) == 1 and parts[0].name is None:
            _refuse_windows(windows)
            stream = _apply_unknown(operator, stream)
            continue
        for part in parts:
            if part.name is not None and part.name.startswith("window"):
                _refuse_windows(windows)
                windows.append(part)
            elif windows:
                # A window's values are hot: what reads them must be part of the same chain.
                stream = _lift_chain([*windows, part], stream, HOLD)
                windows = []
            else:
                stream = _lift_chain([part], stream, HOLD)
    _refuse_windows(windows)
    return stream


def _refuse_windows(windows: Sequence[Part]) -> None:
    if windows:
        raise BuildError(
            f"{windows[0].name} emits streams that lose what is not read at once: let "
            "flat_map(...) follow it directly, or use buffer_with_count, chunk or group_by"
        )


def _apply_unknown(operator: Operator, source: Flowable[Any]) -> Flowable[Any]:
    """An operator of this library, or of a stranger, tells by what it returns."""
    result = operator(source)
    if isinstance(result, Flowable):
        # What it is a stream of, nobody can say.
        return result  # pyright: ignore[reportUnknownVariableType]
    if isinstance(result, Observable):
        return _lift_chain(recognise(operator), source, HOLD)
    raise BuildError(
        f"pipe() takes operators, which return a stream; {_name_of(operator)} returned "
        f"{type(result).__name__}"
    )


def _name_of(operator: Operator) -> str:
    return str(getattr(operator, "__qualname__", type(operator).__name__)).split(".")[0]


def _names(parts: Sequence[Part]) -> str:
    return " > ".join(part.name or _name_of(part.operator) for part in parts)


def _lift_chain(parts: Sequence[Part], source: Flowable[Any], hold: int) -> Flowable[Any]:
    if not parts:
        return source
    name = _names(parts)
    for part in parts:
        if part.kind is Kind.REFUSED:
            raise BuildError(f"{part.name} {part.why}; use {part.instead}")
    holds = any(part.kind is Kind.HOLDS for part in parts)
    if holds and source.turns:
        raise BuildError(
            f"{name} holds events, which between spread() and the working stage would hold "
            "their groups' turns for ever: put it into group_by(each=lambda group: "
            "group.pipe(...), idle=...), or after the working stage"
        )
    make = native_stage(parts)
    bound = hold if holds else 0

    def attach(downstream: Subscriber[Any], run: Run) -> None:
        if make is not None:
            stage: Any = make(downstream, run, flowable.info)
        elif holds:
            stage = LiftedHolding(downstream, run, flowable.info, parts, hold)
        else:
            stage = Lifted(downstream, run, flowable.info, parts)
        run.add_stage(flowable.info, stage.statistics)
        source.attach(stage, run)

    note = "holds events" if holds else ""
    reads = any(part.name in _READING for part in parts)
    flowable: Flowable[Any] = Flowable(
        attach, StageInfo(name, "", bound, note), source, groups=source.groups and not reads
    )
    return flowable
