"""The definition of a pipeline: what it is made of, as plain data.

A pipeline is `{"source": ..., "operators": [...], "sinks": [...]}`, and below it

- a call is a table with the function's public name, or its `module:name`, under `use`, and the
  options that differ from their defaults beside it;
- a stream that is read besides the first one is its source, or a table with `source` and
  `operators`;
- a function is the text `module:name` where an option takes functions, and `{"import": text}`
  elsewhere; a text that looks like that where functions are taken is `{"text": text}`;
- what is used in several places and is one thing, such as a store, is in the table `shared`, and
  `{"shared": name}` where it is used;
- `${NAME}` in a text is a variable of the environment, and `$$` is a `$`; a URL with a password is
  `{"secret": text}`, without it;
- anything without a name, such as a lambda, is `{"unnamed": text}`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from functools import partial
from inspect import signature
from typing import Any, NamedTuple, cast

from penstock.streams.base.database_url import redacted
from penstock.streams.base.recorded import Call, call_of, is_recorded
from penstock.streams.definitions.names import (
    is_a,
    is_reference,
    public,
    public_name,
    reference,
    shown,
)
from penstock.streams.definitions.signatures import Types, options_of
from penstock.streams.protocol.numbering import with_above
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.stages.sink_stage import Sink
from penstock.streams.stages.stream import Stream

__all__ = ["SPECIAL", "VERSION", "Definition", "FromEnvironment", "defined", "stages_of"]

VERSION = 1
"""The version of the form of a definition."""

SPECIAL = ("use", "import", "text", "shared", "unnamed", "secret", "none", "source")
"""Keys of tables that are not plain data."""

_ANY = Types((Any,))


class FromEnvironment(str):
    """A text of a file in which variables of the environment stand, with their values."""

    text: str
    """The text in the file."""


class Definition(NamedTuple):
    """A pipeline as data, and the things in it that have no name, in their order."""

    data: dict[str, Any]
    unnamed: list[Any]

    def is_like(self, other: Definition) -> bool:
        """Whether both define the same: what has no name is equal to itself only."""
        return self.data == other.data and (
            len(self.unnamed) == len(other.unnamed)
            and all(map(lambda one, two: one is two, self.unnamed, other.unnamed))
        )


def stages_of(stages: Iterable[StageInfo]) -> list[dict[str, Any]]:
    """The stages as plain data, in the order of their numbers.

    `holds` is the most events of the source that are ever unfinished in the stage, None where there
    is no bound; `reads` are the numbers of the stages above.
    """
    return [
        {
            "number": stage.number,
            "name": stage.name,
            "detail": stage.detail,
            "holds": stage.holds,
            "on_disk": stage.on_disk,
            "note": stage.note,
            "reads": above,
        }
        for stage, above in with_above(stages)
    ]


def defined(stream: Stream[Any], sinks: Sequence[Sink[Any]]) -> Definition:
    """The definition of a pipeline."""
    counting = _Describing({})
    counting.pipeline(stream, sinks)
    names = counting.names()
    describing = _Describing(names)
    data = describing.pipeline(stream, sinks)
    shared = {names[id(one)]: describing.itself(one) for one in counting.order if id(one) in names}
    if shared:
        data = {"shared": shared, **data}
    return Definition(data, describing.unnamed)


class _Describing:
    """Describes the things of one pipeline; what is in `names`, by its name."""

    def __init__(self, names: dict[int, str]) -> None:
        self._names = names
        self.unnamed: list[Any] = []
        # What is one thing wherever it is used: those below others first, and how often each is.
        self.order: list[Any] = []
        self._uses: dict[int, int] = {}

    def names(self) -> dict[int, str]:
        """A name for everything that is used more than once."""
        names: dict[int, str] = {}
        for one in self.order:
            if self._uses[id(one)] > 1:
                call = call_of(one)
                kind = "stream" if call is None else call.function.__qualname__.split(".")[-1]
                same = sum(name.split("-")[0] == kind.lower() for name in names.values())
                names[id(one)] = kind.lower() + (f"-{same + 1}" if same else "")
        return names

    def pipeline(self, stream: Stream[Any], sinks: Sequence[Sink[Any]]) -> dict[str, Any]:
        source, operators = self._parts(stream, is_itself=False)
        return {
            "source": source,
            "operators": operators,
            "sinks": [self.value(sink, _ANY) for sink in sinks],
        }

    def itself(self, one: Any) -> Any:
        """What a name stands for."""
        if is_a(one, Stream):
            return self._stream(one, is_itself=True)
        call = call_of(one)
        assert call is not None
        return self._call(call)

    # Streams.

    def _stream(self, stream: Stream[Any], *, is_itself: bool = False) -> Any:
        source, operators = self._parts(stream, is_itself=is_itself)
        return {"source": source, "operators": operators} if operators else source

    def _parts(self, stream: Stream[Any], *, is_itself: bool) -> tuple[Any, list[Any]]:
        """The source of a stream, or the shared one that it begins with, and its operators."""
        piped: list[Sequence[Any]] = []
        at, met = stream, list[Stream[Any]]()
        source: Any = None
        while True:
            if not (is_itself and at is stream):
                if id(at) in self._names:
                    source = {"shared": self._names[id(at)]}
                    break
                if self._is_known(at):
                    break
                met.append(at)
            if at.piped is None:
                break
            at, operators = at.piped
            piped.append(operators)
        if source is None and at.piped is None:
            call = call_of(at)
            source = self._unnamed(at, str(at)) if call is None else self._call(call)
        found = [each for part in reversed(piped) for one in part for each in self._operator(one)]
        self.order += reversed(met)
        return source, found

    def _is_known(self, one: Any) -> bool:
        """Whether it was met before; it is counted."""
        self._uses[id(one)] = self._uses.get(id(one), 0) + 1
        return self._uses[id(one)] > 1

    def _operator(self, operator: Any) -> list[Any]:
        call = call_of(operator)
        if call is not None:
            return [self._call(call)]
        # Slow to import, and few pipelines have a stock operator.
        from penstock.streams.rx.recognise import recognise

        found: list[Any] = []
        for part in recognise(operator):
            if part.name is not None:
                found.append(self._stock(part.name, part.operator, part.arguments))
            elif part.operator is operator:
                found.append(self.value(operator, _ANY))
            else:
                found += self._operator(part.operator)
        return found

    def _stock(self, name: str, operator: Any, given: Mapping[str, Any]) -> Any:
        """A stock operator, if its arguments have the names of its options."""
        function = public(f"ops.{name}")
        known = options_of(function)
        arguments = {option: given[option] for option in known if option in given}
        extra = {one: value for one, value in given.items() if one not in known}
        if any(option.is_needed and option.name not in given for option in known.values()) or any(
            value is not None and value is not False for value in extra.values()
        ):
            return self._unnamed(operator, f"the operator {name}")
        return self._table(name, function, arguments)

    # Calls.

    def _call(self, call: Call) -> dict[str, Any]:
        maker = call_of(call.function)
        if maker is not None:
            # A handler that is wrapped: `in_threads(8)(fetch)`.
            return {**self._call(maker), **self._options(call)}
        name = public_name(call.function) or reference(call.function)
        if name is None:
            return self._unnamed(call.function, shown(call.function))
        return {"use": _short(name), **self._options(call)}

    def _options(self, call: Call) -> dict[str, Any]:
        bound = signature(call.function).bind(*call.args, **call.options)
        return self._given(call.function, bound.arguments)

    def _table(self, name: str, function: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return {"use": _short(f"ops.{name}"), **self._given(function, arguments)}

    def _given(self, function: Callable[..., Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The options that differ from their defaults."""
        found: dict[str, Any] = {}
        for option in options_of(function).values():
            if option.name not in arguments:
                continue
            value = arguments[option.name]
            if option.is_many:
                if value:
                    found[option.name] = (
                        [self.value(one, option.types) for one in value]
                        if is_a(value, tuple)
                        else {key: self.value(one, option.types) for key, one in value.items()}
                    )
            elif option.types.are_filled and is_recorded(function):
                # Two that are equal now are not when something was written to one.
                found[option.name] = self._unnamed(value, shown(value))
            elif not _is_default(value, option.default):
                found[option.name] = self.value(value, option.types)
        return found

    # Values.

    def value(self, value: Any, types: Types) -> Any:
        """A value as data; `types` are those that its place takes."""
        if value is None or isinstance(value, bool | int | str | float):
            return self._plain(value, types)
        if is_a(value, Stream):
            return self._stream(value)
        if is_a(value, list):
            return [self.value(one, types.inner) for one in value]
        if is_a(value, Mapping):
            return self._mapping(value, types.inner)
        call = call_of(value)
        if call is not None:
            return self._made(value, call)
        if type(value) is tuple:
            return self._tuple(cast(Any, value), types)
        if is_a(value, os.PathLike):
            return str(value.__fspath__())
        name = reference(value)
        if name is not None:
            return name if types.functions else {"import": name}
        call = _fields(value)
        if call is not None:
            return self._call(call)
        made = _positional(value)
        if made is None:
            return self._unnamed(value, shown(value))
        function, args, keywords = made
        return self._positional(function, args, keywords)

    def _plain(self, value: Any, types: Types) -> Any:
        if isinstance(value, float) and not math.isfinite(value):
            return self._positional(float, [str(value)], {})
        if not isinstance(value, str):
            return value
        if isinstance(value, FromEnvironment):
            return value.text
        if types.functions and is_reference(value):
            return {"text": value}
        if "$" in value:
            return value.replace("$", "$$")
        shown = redacted(value) if "://" in value else value
        return value if shown == value else {"secret": shown}

    def _positional(self, made: Any, args: Iterable[Any], keywords: Mapping[str, Any]) -> Any:
        given = {key: self.value(one, _ANY) for key, one in keywords.items()}
        return {"use": reference(made), "args": [self.value(one, _ANY) for one in args], **given}

    def _tuple(self, value: tuple[Any, ...], types: Types) -> Any:
        items = [self.value(one, types if types.tuples else _ANY) for one in value]
        return items if types.tuples else {"use": "builtins:tuple", "args": [items]}

    def _mapping(self, value: Mapping[Any, Any], types: Types) -> Any:
        if all(isinstance(key, str) and key not in SPECIAL for key in value):
            return {key: self.value(one, types) for key, one in value.items()}
        pairs = [[self.value(key, _ANY), self.value(one, _ANY)] for key, one in value.items()]
        return {"use": "builtins:dict", "args": [pairs]}

    def _made(self, value: Any, call: Call) -> Any:
        if cast(Any, type(value)).__eq__ is not object.__eq__:
            return self._call(call)
        if id(value) in self._names:
            return {"shared": self._names[id(value)]}
        if self._is_known(value):
            return None
        found = self._call(call)
        self.order.append(value)
        return found

    def _unnamed(self, thing: Any, text: str) -> dict[str, Any]:
        self.unnamed.append(thing)
        return {"unnamed": text}


def _short(name: str) -> str:
    """The name of an operator of `ops`, without that where no other name is the same."""
    short = name.removeprefix("ops.")
    try:
        public(short)
    except AttributeError:
        return short
    return name


def _is_default(value: Any, default: Any) -> bool:
    return value is default or (
        type(value) is type(default)
        and isinstance(value, bool | int | float | str | tuple)
        and value == default
    )


def _fields(value: Any) -> Call | None:
    """The call that makes an equal one of a dataclass, or a tuple with names."""
    kind = cast(Any, type(value))
    if reference(kind) is None:
        return None
    names: list[str] = []
    if is_a(value, tuple):
        names = list(getattr(kind, "_fields", ()))
    elif hasattr(kind, "__dataclass_fields__"):
        names = [one.name for one in fields(kind) if one.init]
    return Call(kind, (), {name: getattr(value, name) for name in names}) if names else None


def _positional(value: Any) -> tuple[Any, Sequence[Any], Mapping[str, Any]] | None:
    """A function with the arguments that make an equal value of a type like those of Python."""
    kind = cast(Any, type(value))
    if kind in (set, frozenset):
        return kind, [sorted(value, key=repr)], {}
    if kind is bytes:
        return bytes.fromhex, [value.hex()], {}
    if kind is datetime:
        return datetime.fromisoformat, [value.isoformat()], {}
    if kind is partial:
        return partial, [value.func, *value.args], value.keywords
    try:
        # As it is pickled, if that is all of it.
        made, args, *state = value.__reduce_ex__(4)
    except Exception:
        return None
    if reference(made) in (None, *_COPYING) or any(part is not None for part in state):
        return None
    return made, args, {}


# What pickles any object has the type of it for an argument, and not what it was made of.
_COPYING = ("copyreg:__newobj__", "copyreg:_reconstructor")
