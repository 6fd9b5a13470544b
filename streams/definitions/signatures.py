"""The options of a function, with their types, from its signature.

This is the one description of them: the definition, the reader of files and the schema take it
from here.
"""

from __future__ import annotations

import ast
import builtins
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from inspect import Parameter, getsource, isclass, signature, unwrap
from types import UnionType
from typing import Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_overloads

__all__ = ["Option", "Types", "options_of", "types_of"]


class Types(tuple[Any, ...]):
    """The types of which a value may be one."""

    __slots__ = ()

    @property
    def functions(self) -> bool:
        """Whether it may be a function or a class."""
        return any(map(_is_function, self))

    @property
    def texts(self) -> bool:
        """Whether it may be a text, anything, or what a text is as well, a series of items."""
        origins = [get_origin(one) or one for one in self]
        return any(one in (str, Any, Literal, Iterable, Sequence, Collection) for one in origins)

    @property
    def tuples(self) -> bool:
        """Whether it may be a tuple, and not as well a list."""
        origins = [get_origin(one) or one for one in self]
        return tuple in origins and not any(one in _LISTS for one in origins)

    @property
    def are_filled(self) -> bool:
        """Whether it is a list that is written to: nothing that can only be read is taken."""
        return all((get_origin(one) or one) is list for one in self)

    @property
    def inner(self) -> Types:
        """The types of the items of a list, or of the values of a mapping."""
        args = [
            get_args(one)[-1]
            for one in self
            if get_origin(one) in (*_LISTS, dict, Mapping) and get_args(one)
        ]
        return Types(each for one in args for each in alternatives(one))


class Option(NamedTuple):
    """An option: its name, its kind and default (both as `inspect` has them), and its types."""

    name: str
    kind: Any
    default: Any
    types: Types

    @property
    def is_needed(self) -> bool:
        """Whether it must be given."""
        return self.default is Parameter.empty and not self.is_many

    @property
    def is_many(self) -> bool:
        """Whether it is a list of arguments, or a table of keywords."""
        return self.kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)


_LISTS = (list, Sequence, Iterable, Collection)


@lru_cache(maxsize=512)
def options_of(function: Callable[..., Any]) -> dict[str, Option]:
    """The options of a function or a class, by name. Raises ValueError if they cannot be seen."""
    found = signature(function).parameters.values()
    return {
        one.name: Option(one.name, one.kind, one.default, _types(function, one)) for one in found
    }


def _types(function: Any, parameter: Parameter) -> Types:
    """The types of a parameter; those of the overloads, where the function itself says Any."""
    types = alternatives(_evaluated(parameter.annotation, function))
    if types != (Any,):
        return Types(types)
    more: list[Any] = []
    for overload in get_overloads(unwrap(function)):
        other = signature(overload).parameters.get(parameter.name)
        if other is not None:
            more += alternatives(_evaluated(other.annotation, overload))
    return Types(dict.fromkeys(more) or types)


class _Anything:
    """A name that is for type checkers only."""

    def __class_getitem__(cls, _: Any) -> Any:
        return Any


class _Names(dict[str, Any]):
    """The names of a module, and those that it imports only for type checkers."""

    def __missing__(self, name: str) -> Any:
        if hasattr(builtins, name):
            raise KeyError(name)
        for module, names in _imports(self["__name__"]):
            if name in names:
                return getattr(import_module(module), name)
        # The options of another module, of which this one makes its own.
        for module, _ in _imports(self["__name__"]):
            if module.startswith("penstock.") and hasattr(found := import_module(module), name):
                return getattr(found, name)
        return _Anything


@lru_cache(maxsize=128)
def _imports(module: str) -> list[tuple[str, list[str]]]:
    """The modules from which a module imports, each with the names."""
    tree = ast.parse(getsource(sys.modules[module]))
    return [
        (node.module, [one.name for one in node.names])
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module
    ]


def types_of(annotation: Any, function: Any) -> Types:
    """The types that an annotation of a function names."""
    return Types(alternatives(_evaluated(annotation, function)))


def _evaluated(annotation: Any, function: Any) -> Any:
    if annotation is Parameter.empty:
        return Any
    if not isinstance(annotation, str):
        return annotation
    home = unwrap(function.__init__ if isclass(function) else function)
    names = _Names(home.__globals__)
    # An alias with a forward reference in it takes no parameters when it runs.
    for text in (annotation, annotation.partition("[")[0]):
        try:
            return eval(text, {}, names)
        except Exception:
            # A type of a library that is not installed.
            continue
    return Any


def alternatives(hint: Any) -> tuple[Any, ...]:
    """The types of which a value may be one."""
    if isinstance(hint, TypeVar):
        hint = Any if hint.__bound__ is None else hint.__bound__
    if hint in (_Anything, object):
        return (Any,)
    alias = get_origin(hint) or hint
    if hasattr(alias, "__value__"):
        return alternatives(alias.__value__)
    if get_origin(hint) in (Union, UnionType):
        return tuple(dict.fromkeys(one for arm in get_args(hint) for one in alternatives(arm)))
    return (hint,)


def _is_function(hint: Any) -> bool:
    origin = get_origin(hint) or hint
    if origin in (Callable, type):
        return True
    # A protocol with a call.
    return isclass(origin) and getattr(origin, "_is_protocol", False) and "__call__" in vars(origin)
