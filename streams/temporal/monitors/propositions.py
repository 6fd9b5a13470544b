"""Evaluates propositions: from an event to the letter of those that hold for it.

A proposition is a function of the event, or a mapping from field names to required values: each
field must equal its value, or one of a set of values. Text is never evaluated.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from inspect import isgeneratorfunction
from itertools import repeat
from operator import itemgetter
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any, TypeVar, cast

from penstock.streams.base.errors import BuildError, add_note, not_awaited
from penstock.streams.base.validation import is_async, require_parameters
from penstock.streams.temporal.automata.automaton import Automaton, names_in
from penstock.streams.temporal.errors import UnknownProposition
from penstock.streams.temporal.formula.formula import Formula

__all__ = ["Letters", "Test", "given", "letters"]

T = TypeVar("T")

Test = Callable[[T], object] | Mapping[str, object]

# From events to their letters, lazily.
Letters = Callable[[list[Any]], Iterable[int]]

_MISSING = object()
_DICTS = frozenset((dict,))
# Types whose objects are true, whatever the result will be.
_NO_ANSWERS = (CoroutineType, GeneratorType, AsyncGeneratorType, Future)


def letters(
    what: Formula | Automaton, tests: Mapping[str, Test[Any]], *, strict: bool = True
) -> Letters:
    """The function from events to the bits of the propositions of a formula, or an automaton, that
    hold for each.

    Each test is called once per event; an error it raises gets a note with its name. Raises
    UnknownProposition for a proposition without a test, unless `strict` is false: then it holds
    where the field or attribute of its name is true. BuildError for anything but a test: an async
    function, whose result is always true, or a mapping that names no field.
    """
    names = names_in(what)
    predicates: dict[str, Callable[[Any], object]] = {}
    for name, position in names.items():
        if name in tests:
            predicates[name] = _predicate(name, tests[name])
        elif strict:
            raise UnknownProposition(name, position, tests)
        else:
            predicates[name] = _is_true(name)
    for name, test in tests.items():
        _predicate(name, test)
    alike = _one_field(list(names), tests)
    return alike if alike is not None else _one_by_one(predicates)


def _one_by_one(predicates: dict[str, Callable[[Any], object]]) -> Letters:
    cases = [(name, 1 << bit, test) for bit, (name, test) in enumerate(predicates.items())]

    # A generator, because a StopIteration from a test would end a map.
    def all_letters(values: list[Any]) -> Iterator[int]:
        for value in values:
            bits = 0
            asked = ""
            try:
                for name, bit, test in cases:
                    asked = name
                    found = test(value)
                    # Most tests return a bool, and a call takes longer than this check.
                    if found is True or (found is not False and _is_so(found)):
                        bits |= bit
            except Exception as error:
                add_note(error, f"in the proposition {asked!r}")
                raise
            yield bits

    return all_letters


def _one_field(names: list[str], tests: Mapping[str, Test[Any]]) -> Letters | None:
    """One look-up, if all propositions compare the same field."""
    bits: dict[Hashable, int] = {}
    fields: set[str] = set()
    for at, name in enumerate(names):
        test = tests.get(name)
        if test is None or callable(test) or len(test) != 1:
            return None
        ((field, wanted),) = test.items()
        fields.add(field)
        for one in _alternatives(wanted):
            if not isinstance(one, Hashable):
                return None
            bits[one] = bits.get(one, 0) | 1 << at
    if len(fields) != 1:
        return None
    (field,) = fields

    get = itemgetter(field)

    def letter(value: Any) -> int:
        try:
            return bits.get(_field(value, field), 0)
        except TypeError:
            # A value that cannot be hashed equals none of them.
            return 0

    def all_letters(values: list[Any]) -> Iterable[int]:
        # Most events are dicts that have the field, and need no Python call each.
        if _DICTS.issuperset(map(type, values)):
            try:
                return list(map(bits.get, map(get, values), repeat(0)))
            except Exception:
                # The event that raised it raises it again when it is reached.
                pass
        return map(letter, values)

    return all_letters


def given(where: Mapping[str, Test[Any]] | None, named: Mapping[str, Test[Any]]) -> dict[str, Any]:
    """The tests of both; raises BuildError for a proposition that has one in each."""
    if where is None:
        return dict(named)
    if not isinstance(cast(Any, where), Mapping):
        raise BuildError(f"where={where!r}: give a mapping from propositions to their tests")
    for name in named:
        if name in where:
            raise BuildError(
                f"the proposition {name!r} is given in where and as a keyword: leave one out"
            )
    return {**where, **named}


def _predicate(name: str, test: Test[Any]) -> Callable[[Any], object]:
    if callable(test):
        require_parameters(test, f"the proposition {name}", 1)
        if is_async(test) or isgeneratorfunction(test):
            raise BuildError(
                f"the proposition {name!r} is an async function or a generator, whose result would "
                "be taken for true without being looked at: give a plain function of the event"
            )
        return test
    if not isinstance(cast(Any, test), Mapping):
        raise BuildError(
            f"the proposition {name!r} is {test!r}: give a function of the event, or the fields "
            f'that it must have, as in {name}={{"type": "paid"}}; text is not evaluated'
        )
    if not test:
        raise BuildError(
            f"the proposition {name!r} names no field, and would hold of every event: give the "
            f'fields that it must have, as in {name}={{"type": "paid"}}'
        )
    wanted = [(field, _alternatives(value)) for field, value in test.items()]
    return lambda value: all(_field(value, field) in some for field, some in wanted)


def _alternatives(wanted: object) -> list[Any]:
    return list(cast(set[Any], wanted)) if isinstance(wanted, set | frozenset) else [wanted]


def _is_so(found: object) -> bool:
    """Whether what a test returned is true; TypeError for an awaitable."""
    if isinstance(found, _NO_ANSWERS):
        kind = type(cast(object, found)).__name__
        not_awaited(cast(object, found))
        raise TypeError(
            f"its result is of type {kind}, which is never awaited: give a plain function of the "
            "event"
        )
    return bool(found)


def _is_true(name: str) -> Callable[[Any], object]:
    def test(value: Any) -> bool:
        found = _field(value, name)
        return found is not _MISSING and bool(found)

    return test


def _field(value: Any, field: str) -> Any:
    # Most values are dicts, and checking for other mappings takes longer.
    if type(value) in _DICTS or isinstance(value, Mapping):
        return cast(Mapping[str, Any], value).get(field, _MISSING)
    return getattr(value, field, _MISSING)
