"""The JSON Schema of files of definitions, from the signatures of all that they can use."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import isclass, signature, unwrap
from typing import Any, Literal, cast, get_args, get_origin

from reactivex import Observable

from penstock.streams.definitions.catalog import catalog, kind_of
from penstock.streams.definitions.names import REFERENCE
from penstock.streams.definitions.signatures import Option, Types, options_of, types_of
from penstock.streams.stages.sink_stage import Sink
from penstock.streams.stages.stream import Stream

__all__ = ["schema"]

_Schema = dict[str, Any]

_PLAIN = {bool: "boolean", int: "integer", float: "number", str: "string"}
_PLURAL = {"source": "sources", "operator": "operators", "sink": "sinks", "value": "values"}


def schema() -> _Schema:
    """The schema, as plain data, after JSON Schema 2020-12.

    It knows the options of all functions of this library and of stock operators; those of a
    user's own function may have any.
    """
    makers = _Makers()
    calls = {name: makers.call(name, function) for name, function in catalog().items()}
    kinds: dict[str, list[str]] = {plural: [] for plural in _PLURAL.values()}
    for name, function in catalog().items():
        kinds[_PLURAL[kind_of(function)]].append(name)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A pipeline of penstock",
        "type": "object",
        "properties": {
            "$schema": {"type": "string"},
            "penstock": {"const": 1, "description": "the version of this form"},
            "source": {"$ref": "#/$defs/source"},
            "operators": {"type": "array", "items": {"$ref": "#/$defs/operator"}},
            "sinks": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/sink"}},
            "shared": {"type": "object", "additionalProperties": {"$ref": "#/$defs/any call"}},
            "stages": {"description": "what is drawn, which is not read"},
        },
        "required": ["source", "sinks"],
        "additionalProperties": False,
        "$defs": {
            **_fixed(kinds),
            **makers.found,
            **{f"use {name}": call for name, call in calls.items()},
        },
    }


def _fixed(kinds: Mapping[str, list[str]]) -> _Schema:
    """What does not depend on single functions."""
    stream: _Schema = {
        "type": "object",
        "properties": {
            "source": {"$ref": "#/$defs/source"},
            "operators": {"type": "array", "items": {"$ref": "#/$defs/operator"}},
        },
        "required": ["source"],
        "additionalProperties": False,
    }
    every = sorted(name for names in kinds.values() for name in names)
    return {
        "function": {
            "description": "module:name, or an object that can be called",
            "anyOf": [
                {"type": "string", "pattern": f"^{REFERENCE}$"},
                _single("import", {"type": "string", "pattern": f"^{REFERENCE}$"}),
                _calls(["in_processes", "in_threads", "lift", "using"]),
                _single("shared", {"type": "string"}),
            ],
        },
        "made elsewhere": {
            "description": "a shared thing, something imported, or what your own function makes",
            "anyOf": [{"$ref": "#/$defs/shared"}, {"$ref": "#/$defs/import"}, _calls([])],
        },
        "shared": _single("shared", {"type": "string"}),
        "import": _single("import", {"type": "string", "pattern": f"^{REFERENCE}$"}),
        "text": _single("text", {"type": "string"}),
        "none": _single("none", {"const": True}),
        "stream": {"anyOf": [stream, _calls(kinds["sources"]), {"$ref": "#/$defs/shared"}]},
        "source": {"anyOf": [stream, _calls(kinds["sources"]), {"$ref": "#/$defs/shared"}]},
        "operator": {
            "anyOf": [
                _calls(kinds["operators"]),
                {"$ref": "#/$defs/import"},
                {"$ref": "#/$defs/shared"},
            ]
        },
        "sink": {
            "anyOf": [
                _calls(kinds["sinks"]),
                {"$ref": "#/$defs/import"},
                {"$ref": "#/$defs/shared"},
            ]
        },
        "any call": {"anyOf": [stream, _calls(every), {"$ref": "#/$defs/import"}]},
    }


def _single(key: str, of: _Schema) -> _Schema:
    """A table with one key."""
    return {
        "type": "object",
        "properties": {key: of},
        "required": [key],
        "additionalProperties": False,
    }


def _calls(names: Iterable[str]) -> _Schema:
    """A call of one of these functions, with its options, or of a user's own."""
    known = list(names)
    own = {"type": "string", "pattern": f"^{REFERENCE}$"}
    if not known:
        return {"type": "object", "required": ["use"], "properties": {"use": own}}
    return {
        "type": "object",
        "required": ["use"],
        "properties": {"use": {"anyOf": [{"enum": known}, own]}},
        # One that is wrong is then reported as this function's, and not as none of all.
        "allOf": [
            {
                "if": {"properties": {"use": {"const": name}}},
                "then": {"$ref": f"#/$defs/use {name}"},
            }
            for name in known
        ],
    }


class _Makers:
    """Which functions make values of a type."""

    def __init__(self) -> None:
        self.found: _Schema = {}
        """Calls that several options take."""
        self._results = {name: _results(function) for name, function in catalog().items()}

    def call(self, name: str, function: Callable[..., Any]) -> _Schema:
        """A call of one function."""
        options = options_of(function)
        properties = {one.name: self._option(one) for one in options.values()}
        needed = [one.name for one in options.values() if one.is_needed]
        if name in ("in_processes", "in_threads", "using"):
            # What wraps a handler.
            properties["handler"] = {"$ref": "#/$defs/function"}
            needed.append("handler")
        about = (function.__doc__ or "").strip().partition("\n\n")[0]
        return {
            "description": " ".join(about.split()),
            "type": "object",
            "properties": {"use": {"const": name}, **properties},
            "required": ["use", *needed],
            "additionalProperties": False,
        }

    def _option(self, option: Option) -> _Schema:
        of = self._any_of(option.types)
        if option.kind is option.kind.VAR_POSITIONAL:
            return {"type": "array", "items": of}
        if option.kind is option.kind.VAR_KEYWORD:
            return {"type": "object", "additionalProperties": of}
        default = option.default
        if isinstance(default, bool | int | float | str):
            return {**of, "default": default}
        return of

    def _any_of(self, types: Iterable[Any]) -> _Schema:
        found: list[_Schema] = []
        for each in types:
            one = self._one(each)
            if one == {}:
                return {}
            found += [each for each in one.get("anyOf", [one]) if each not in found]
        return {"anyOf": [*found, {"$ref": "#/$defs/made elsewhere"}]}

    def _one(self, of: Any) -> _Schema:
        origin = get_origin(of) or of
        if of is None or of is type(None):
            return {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/none"}]}
        if origin is Literal:
            return {"enum": list(get_args(of))}
        if Types((of,)).functions:
            return {"$ref": "#/$defs/function"}
        if of is str:
            return {"anyOf": [{"type": "string"}, {"$ref": "#/$defs/text"}]}
        if of in _PLAIN:
            return {"type": _PLAIN[of]}
        if origin is os.PathLike:
            return {"type": "string"}
        if of is Any or not isclass(origin):
            return {}
        if issubclass(origin, Stream | Observable):
            return {"$ref": "#/$defs/stream"}
        if issubclass(origin, Sink):
            return {"$ref": "#/$defs/sink"}
        return self._container(of, cast(Any, origin))

    def _container(self, of: Any, origin: Any) -> _Schema:
        inner = self._any_of(Types((of,)).inner) if get_args(of) else {}
        if issubclass(origin, Mapping):
            return {"type": "object", "additionalProperties": inner}
        if origin is tuple:
            args = [one for one in get_args(of) if one is not ...]
            return {"type": "array", "items": self._any_of(args)}
        if origin is Iterable:
            # A text is one, and so is a table.
            return {"anyOf": [{"type": "array", "items": inner}, {"type": ["string", "object"]}]}
        if origin in (list, Sequence):
            return {"type": "array", "items": inner}
        if origin is dict:
            return {"type": "object", "additionalProperties": inner}
        names = [name for name, made in self._results.items() if _makes(made, origin)]
        key = f"made by {' or '.join(names) or 'your own'}"
        self.found[key] = _calls(names)
        return {"$ref": f"#/$defs/{key}"}


def _results(function: Callable[..., Any]) -> Types:
    if isclass(function):
        return Types((function,))
    return types_of(signature(unwrap(function)).return_annotation, function)


def _makes(results: Types, kind: Any) -> bool:
    """Whether a function with these results makes values of a type."""
    for one in results:
        made = get_origin(one) or one
        if isclass(made) and (kind in made.__mro__ or _has_all_of(made, kind)):
            return True
    return False


def _has_all_of(made: type, kind: Any) -> bool:
    """Whether a class has what a protocol says."""
    if not getattr(kind, "_is_protocol", False):
        return False
    said: list[str] = [*vars(kind), *getattr(kind, "__annotations__", {})]
    return all(hasattr(made, name) for name in said if not name.startswith("_"))
