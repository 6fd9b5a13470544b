"""Marble diagrams: a stream's signals and their times, written as one line of text.

    --1--2---3--|        1 at 2, 2 at 5, 3 at 9, completed at 12

The alphabet is RxPY's (reactivex/observable/marbles.py), read as RxPY reads it, plus `!`:

    -        one tick
    a  1     an item, and a tick
    (a,b,|)  signals at the time of the `(`; every character of the group is a tick, the
             brackets and commas included; an item in a group may have several characters, as
             in `(12)` or `(-1)`
    |        completed
    #        error
    !        cancel; what follows is what the source would have done (not in RxPY)
    space    nothing, not even time: it aligns diagrams

A time is the character's index, spaces not counted, times the length of a tick. An item is
cast to int, else to float, else is a str; then it is looked up.

This module raises ValueError where RxPY ignores what it cannot read (a bracket without its partner,
`(a|)` for `(a,|)`), and for items side by side: `123` is one item to RxPY, and three to most people
who write it. `1-2-3` and `(1,2,3)` are three, `(123)` is one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal, cast

from penstock.streams.base.errors import WrongType, describe

__all__ = ["Kind", "Signal", "parse_marbles", "to_marbles"]

Kind = Literal["next", "error", "completed", "cancel"]
# Keys are str, int or float; Any, because Mapping would refuse a dict whose keys are all str.
Lookup = Mapping[Any, Any]

_TOKEN = re.compile(r"(?P<ticks>-+)|\((?P<group>[^()]*)\)|(?P<single>[|#!]|[^-,()|#!]+)")
_IN_GROUP = re.compile(r"[|#!]|[^,()|#!]+")
_ENDS: dict[str, Kind] = {"|": "completed", "#": "error", "!": "cancel"}
_SYMBOLS = {kind: symbol for symbol, kind in _ENDS.items()}


@dataclass(frozen=True, slots=True)
class Signal:
    """What happened at `time` (seconds). `value` is the item of a "next", the exception of an
    "error", and None otherwise."""

    time: float
    kind: Kind
    value: Any = None  # Any: the items of a diagram have any type


def parse_marbles(
    text: str,
    *,
    tick: float = 1.0,
    lookup: Lookup | None = None,
    error: Exception | None = None,
) -> list[Signal]:
    """The signals of a diagram, in order.

    `tick` is the length of one character in seconds, `lookup` gives the items that letters or
    numbers stand for, `error` is what `#` stands for (by default an `Exception("error")`).
    ValueError if the text is not a diagram, or if anything follows `|` or `#`; WrongType if it is
    no text.

    >>> parse_marbles("-a|")
    [Signal(time=1.0, kind='next', value='a'), Signal(time=2.0, kind='completed', value=None)]
    """
    if not isinstance(cast(Any, text), str):
        raise WrongType(
            f'parse_marbles({describe(text, 80)}): a diagram is one text, such as "-a-b|", and '
            "several streams have one each"
        )
    text = "".join(text.split())
    failure = error or Exception("error")
    signals: list[Signal] = []
    index = 0
    while index < len(text):
        token = _TOKEN.match(text, index)
        if token is None:
            raise ValueError(f"{text!r} has no meaning from {text[index:]!r} on")
        if len(token["single"] or "") > 1:
            raise ValueError(_side_by_side(token["single"]))
        for element in _elements(token):
            kind = _ENDS.get(element, "next")
            value = failure if kind == "error" else None
            if kind == "next":
                value = _item(element, lookup)
            signals.append(Signal(index * tick, kind, value))
        index = token.end()
    _refuse_signals_after_the_end(signals)
    return signals


def to_marbles(
    signals: Iterable[Signal], *, tick: float = 1.0, lookup: Lookup | None = None
) -> str:
    """The shortest diagram that `parse_marbles` reads as these signals.

    `lookup` is the one given to `parse_marbles`. ValueError if the signals have no diagram: a
    time between two ticks or before the end of the previous signals (brackets take as many
    ticks as they have characters; a shorter `tick` makes room), an item whose text is not read
    as that item (a `lookup` gives it a letter), or anything after the end.
    """
    known = list(signals)
    _refuse_signals_after_the_end(known)
    text = ""
    for time, together in groupby(known, key=lambda signal: signal.time):
        index = round(time / tick)
        if abs(index * tick - time) > 1e-9 * max(1.0, abs(time)):
            raise ValueError(f"{time} s lies between two ticks of {tick} s")
        if index < len(text):
            raise ValueError(f"no room at {time} s after {text!r}: take a shorter tick")
        text += "-" * (index - len(text))
        text += _written([_element(signal, lookup) for signal in together], after=text)
    return text


def _side_by_side(items: str) -> str:
    first, second = items[0], items[1]
    return (
        f"{items!r} has no '-' between its characters: write '{first}-{second}' for items one "
        f"after another, '({first},{second})' for items at one time, and '({items})' for one item"
    )


def _elements(token: re.Match[str]) -> list[str]:
    group: str | None = token["group"]
    if group is None:
        return [token["single"]] if token["single"] else []
    elements = [element for element in group.split(",") if element]
    for element in elements:
        if _IN_GROUP.fullmatch(element) is None:
            raise ValueError(f"{element!r} in {token[0]!r} needs commas between its signals")
    return elements


def _written(elements: list[str], *, after: str) -> str:
    # Two items side by side would read as one.
    joined = after[-1:] not in ("", "-", ")", *_ENDS) and elements[0] not in _ENDS
    if len(elements) == 1 and len(elements[0]) == 1 and not joined:
        return elements[0]
    return f"({','.join(elements)})"


def _item(element: str, lookup: Lookup | None) -> Any:
    item: str | float = element
    for number in (int, float):
        try:
            item = number(element)
            break
        except ValueError:
            continue
    return lookup.get(item, item) if lookup else item


def _element(signal: Signal, lookup: Lookup | None) -> str:
    if signal.kind != "next":
        return _SYMBOLS[signal.kind]
    for element in [*(str(key) for key in lookup or ()), str(signal.value)]:
        readable = element not in _ENDS and _IN_GROUP.fullmatch(element) and not _SPACE(element)
        if readable and _same(_item(element, lookup), signal.value):
            return element
    raise ValueError(f"{signal.value!r} has no marble: give it a letter in lookup")


_SPACE = re.compile(r"\s").search


def _same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and bool(one == other)


def _refuse_signals_after_the_end(signals: list[Signal]) -> None:
    for signal in signals[:-1]:
        if signal.kind in ("completed", "error"):
            raise ValueError(f"nothing may follow the end, {signal.kind} at {signal.time} s")
