"""From an event to its letter: which propositions hold of it.

A proposition is a function of the event, or what fields of the event must be: a mapping from
names to values, of which all must be equal, or one of a set. Text is never evaluated.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from itertools import repeat
from operator import itemgetter
from typing import Any, TypeVar, cast

from streams.errors import BuildError
from streams.temporal.errors import UnknownProposition
from streams.temporal.formula import Formula, propositions

__all__ = ["Letters", "Test", "letters"]

T = TypeVar("T")

Test = Callable[[T], object] | Mapping[str, object]

# From events to their letters, of which each is found when it is asked for.
Letters = Callable[[list[Any]], Iterable[int]]

_MISSING = object()
_DICTS = frozenset((dict,))


def letters(formula: Formula, tests: Mapping[str, Test[Any]], *, strict: bool = True) -> Letters:
    """The function from events to the bits of the propositions of `formula` that hold of each.

    Each test is called once for an event; what one raises gets a note with its name. Raises
    UnknownProposition for a proposition without a test, unless `strict` is false: then it holds
    where the field or attribute of its name is true.
    """
    names = propositions(formula)
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

    # A generator, for a StopIteration out of a test would end a map.
    def all_letters(values: list[Any]) -> Iterator[int]:
        for value in values:
            bits = 0
            asked = ""
            try:
                for name, bit, test in cases:
                    asked = name
                    if test(value):
                        bits |= bit
            except Exception as error:
                error.add_note(f"in the proposition {asked!r}")
                raise
            yield bits

    return all_letters


def _one_field(names: list[str], tests: Mapping[str, Test[Any]]) -> Letters | None:
    """One look-up, where all propositions ask for values of one and the same field."""
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
            # What cannot be hashed is equal to none of them.
            return 0

    def all_letters(values: list[Any]) -> Iterable[int]:
        # Most are dicts that have the field, and so take no call of Python each.
        if _DICTS.issuperset(map(type, values)):
            try:
                return list(map(bits.get, map(get, values), repeat(0)))
            except Exception:
                # The one that raised it does so again when its turn comes.
                pass
        return map(letter, values)

    return all_letters


def _predicate(name: str, test: Test[Any]) -> Callable[[Any], object]:
    if callable(test):
        return test
    if not isinstance(cast(Any, test), Mapping):
        raise BuildError(
            f"the proposition {name!r} is {test!r}: give a function of the event, or the fields "
            f'that it must have, as in {name}={{"type": "paid"}}; text is not evaluated'
        )
    wanted = [(field, _alternatives(value)) for field, value in test.items()]
    return lambda value: all(_field(value, field) in some for field, some in wanted)


def _alternatives(wanted: object) -> list[Any]:
    return list(cast(set[Any], wanted)) if isinstance(wanted, set | frozenset) else [wanted]


def _is_true(name: str) -> Callable[[Any], object]:
    def test(value: Any) -> bool:
        found = _field(value, name)
        return found is not _MISSING and bool(found)

    return test


def _field(value: Any, field: str) -> Any:
    # Most values are dicts, and asking whether it is any other mapping takes longer.
    if type(value) in _DICTS or isinstance(value, Mapping):
        return cast(Mapping[str, Any], value).get(field, _MISSING)
    return getattr(value, field, _MISSING)
