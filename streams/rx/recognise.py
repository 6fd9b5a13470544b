"""Recognises the stock `reactivex` operators that a value given to `pipe` is made of.

`ops.map(f)` returns a nameless inner function. Its closure shows what it is: most operators are
curried, so the closure holds the function `map_` of `reactivex.operators._map` and its arguments;
the others are inner functions of such a function, whose name is the first part of their
`__qualname__`. A composition holds the tuple of operators that it applies one after another.
A test walks every public name of `reactivex.operators`, so a release that changes this is
noticed; an operator that is not recognised is treated as one that holds its inputs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import CellType, FunctionType, MappingProxyType
from typing import TYPE_CHECKING, Any

from reactivex import Observable
from reactivex.subject import BehaviorSubject, ReplaySubject

from penstock.streams.base.errors import WrongType
from penstock.streams.base.validation import is_async, is_coroutine_function
from penstock.streams.failures.policy import Retry
from penstock.streams.rx.table import SPECIAL, TABLE, WITH_ASYNC, WITH_ASYNC_GENERATOR, Entry, Kind
from penstock.streams.stages.sink_stage import Sink

if TYPE_CHECKING:
    from penstock.streams.rx.combining.side_streams import Read
    from penstock.streams.stages.stream import Stream

__all__ = ["Operator", "Part", "recognise", "with_arguments"]

# The element types of a third-party operator cannot be known when it is taken apart.
Operator = Callable[[Any], Any]

_STOCK = "reactivex.operators"
_CURRIED = "curry_flip.<locals>._wrap_args.<locals>._wrap_curried"
_COMPOSED = "compose.<locals>._compose"
_EMPTY_CELL = CellType()
_UNKNOWN = Entry(Kind.HOLDS, "is not a stock operator, so any input may be answered later")


# Not frozen, which would take four times as long to make.
@dataclass(slots=True)
class Part:
    """One operator in the value given to `pipe`, with its entry in the lift table.

    name       its public name in `reactivex.operators`, None if it is not a stock operator
    entry      when it answers its inputs, and why
    operator   the function itself, from source to result
    arguments  what it was built with, by the name of the parameter, defaults included

    For one that reads other streams, filled in by who lifts it:

    others     those that are known when the pipeline is built
    make       makes the operator for one stage, which reads its other streams with demand, given
               the place of the first of `others` among all those of the stage, from 1 on
    """

    name: str | None
    entry: Entry
    operator: Operator
    arguments: Mapping[str, Any]
    others: tuple[Stream[Any], ...] = ()
    make: Callable[[Read, int], Operator] | None = None


def recognise(operator: Operator) -> list[Part]:
    """The parts of `operator`, from first to last; an unknown function is one part.

    Compositions are opened, however deep; an empty one has no parts. Applying the `operator`s
    of the parts one after another is the same as applying `operator`. Nothing is called or
    subscribed.

    TypeError: `operator` is not callable, or it is a function such as `ops.pairwise` that
    returns an operator when it is called and was not called.
    """
    if not isinstance(operator, FunctionType):
        if isinstance(operator, Sink):
            name = operator.info.name
            raise WrongType(
                f"pipe() takes operators, and {name}(...) is a sink, in which a pipeline ends: "
                f"stream.pipe(...).to({name}(...))"
            )
        if isinstance(operator, Retry):
            raise WrongType(
                f"pipe() takes operators, and retry({operator.times}) is a policy for the events "
                "of one stage: adaptive_flat_map(handler, on_error=retry(...)); the operator that "
                "reads the source again is ops.retry(...)"
            )
        if not callable(operator):
            raise WrongType(f"pipe() takes operators, and {operator!r} is not callable")
        return [_part(None, operator, {})]
    module, path = operator.__module__, operator.__qualname__
    held = _closure(operator)
    if module == "reactivex.pipe" and path == _COMPOSED:
        return _composed(
            operator, [part for inner in held["operators"] for part in recognise(inner)]
        )
    if module == "reactivex.internal.curry" and path == _CURRIED:
        return [_curried(operator, held)]
    if module == _STOCK and path in TABLE:
        raise WrongType(f"pipe() takes an operator: call ops.{path}(...), which returns one")
    if _is_stock(operator):
        return [_part(path.partition(".")[0], operator, held)]
    return [_part(None, operator, {})]


def with_arguments(part: Part, others: Mapping[str, Any]) -> Operator:
    """The operator of `part`, a stock one, built with `others` for its arguments of these names."""
    operator = part.operator
    assert isinstance(operator, FunctionType)
    held = _closure(operator)
    if operator.__qualname__ == _CURRIED:
        fun, bound = held["fun"], _bound(held)
        bound.arguments.update(others)
        _, *args = bound.args
        return lambda source: fun(source, *args, **bound.kwargs)
    cells = zip(operator.__code__.co_freevars, operator.__closure__ or (), strict=True)
    closure = tuple(CellType(others[name]) if name in others else cell for name, cell in cells)
    built: Operator = FunctionType(
        operator.__code__,
        operator.__globals__,
        operator.__name__,
        operator.__defaults__,
        closure,
    )
    return built


def _composed(operator: Operator, parts: list[Part]) -> list[Part]:
    """The parts of a composition; those that make an operator with a name of its own are one."""
    match parts:
        case [Part(name="map") as first, Part(name="switch_latest")]:
            name, function = "switch_map", first.arguments["mapper"]
        case [Part(name="map_indexed") as first, Part(name="switch_latest")]:
            name, function = "switch_map_indexed", first.arguments["mapper_indexed"]
        case [Part(name="map") as first, Part(name="merge", arguments={"max_concurrent": 1})]:
            name, function = "concat_map", first.arguments["mapper"]
        case _:
            return parts
    return [_part(name, operator, {"project": function})]


def _curried(operator: Operator, held: Mapping[str, Any]) -> Part:
    fun: Callable[..., Any] = held["fun"]
    # Users may curry functions of their own with reactivex's decorator.
    if not _is_stock(fun):
        return _part(None, operator, {})
    return _part(fun.__name__, operator, _arguments(held))


def _arguments(held: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a curried function that is called, but the source, by name."""
    defaults = _defaults_of(held["fun"])
    args = held["args"]
    if defaults is not None and len(args) <= len(defaults):
        arguments = {**defaults, **dict(zip(defaults, args, strict=False)), **held["kwargs"]}
        if len(arguments) == len(defaults) and inspect.Parameter.empty not in arguments.values():
            return arguments
    # Any other, and one that was called wrongly, which is an error.
    _, *bound = _bound(held).arguments.items()
    return dict(bound)


# As many entries as stock operators. A group's operators are recognised anew for each group, and
# binding arguments to a signature takes ten times as long.
@lru_cache(maxsize=512)
def _defaults_of(fun: Callable[..., Any]) -> dict[str, Any] | None:
    """The parameters behind the source, with their defaults; None if some have no single value."""
    _, *parameters = inspect.signature(fun).parameters.values()
    if any(one.kind is not inspect.Parameter.POSITIONAL_OR_KEYWORD for one in parameters):
        return None
    return {one.name: one.default for one in parameters}


def _bound(held: Mapping[str, Any]) -> inspect.BoundArguments:
    """The arguments of a curried function that is called, the source first, as None."""
    bound = inspect.signature(held["fun"]).bind(None, *held["args"], **held["kwargs"])
    bound.apply_defaults()
    return bound


def _part(made_by: str | None, operator: Operator, arguments: dict[str, Any]) -> Part:
    name = None if made_by is None else _public_name(made_by.rstrip("_"), arguments)
    entry = _UNKNOWN if name is None else _entry(name, arguments)
    return Part(name, entry, operator, MappingProxyType(arguments))


def _entry(name: str, arguments: Mapping[str, Any]) -> Entry:
    is_special = _IS_SPECIAL.get(name)
    entry = SPECIAL[name] if is_special and is_special(arguments) else TABLE[name]
    if entry.kind is Kind.REFUSED or not any(map(is_async, arguments.values())):
        return entry
    has_coroutines = any(map(is_coroutine_function, arguments.values()))
    return WITH_ASYNC if has_coroutines else WITH_ASYNC_GENERATOR


def _is_stock(function: Callable[..., Any]) -> bool:
    # A function made by exec has no module.
    return (function.__module__ or "").startswith(_STOCK)


def _closure(function: FunctionType) -> dict[str, Any]:
    """The variables of the enclosing functions that `function` uses, by name."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    return {name: cell.cell_contents for name, cell in cells if cell != _EMPTY_CELL}


def _public_name(internal: str, arguments: Mapping[str, Any]) -> str | None:
    choose = _NAMED_BY_ARGUMENTS.get(internal)
    name = choose(arguments) if choose else internal
    return name if name in TABLE else None


def _multicast(arguments: Mapping[str, Any]) -> str:
    match arguments.get("subject"):
        case ReplaySubject():
            return "replay"
        case BehaviorSubject():
            return "publish_value"
        case _:
            return "multicast"


# Internal functions that make more than one public operator.
_NAMED_BY_ARGUMENTS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "element_at_or_default": lambda a: (
        "element_at_or_default" if a.get("has_default") else "element_at"
    ),
    "find_value": lambda a: "find_index" if a.get("yield_index") else "find",
    "first_or_default_async": lambda a: "first_or_default" if a.get("has_default") else "first",
    "multicast": _multicast,
    "single_or_default_async": lambda a: "single_or_default" if a.get("has_default") else "single",
}


# When the entry of SPECIAL replaces the one of TABLE.
_IS_SPECIAL: dict[str, Callable[[Mapping[str, Any]], bool]] = {
    "sample": lambda a: isinstance(a.get("sampler"), Observable),
    "slice": lambda a: any((a.get(bound) or 0) < 0 for bound in ("start", "stop")),
}
