"""Finds a user's consumer of the kata in a file: a function of one event, or what has `submit`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from penstock.command.pipelines.load import load_module, path_and_name
from penstock.streams.base.errors import BuildError

__all__ = ["Candidate", "load_consumer"]

_WHAT = "consumer"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A consumer that can be tried. `name` is `FILE:NAME`, as it was found.

    `make` returns it: a function, or an object with `submit`. Called once for each trial, in the
    loop in which it is tried; a class makes an object each time.
    """

    name: str
    make: Callable[[], Any]


def load_consumer(where: str, arguments: Sequence[str] = ()) -> Candidate:
    """Import the file and return its consumer; raises BuildError for every error.

    `arguments` become the file's `sys.argv[1:]`. Without a name, it is the one class or object with
    `submit` of the file, otherwise its one function; names that begin with `_` do not count.
    """
    path, name = path_and_name(where)
    module = load_module(path, arguments, _WHAT)
    found = _named(module, path, name) if name is not None else _only(module, path)
    value = getattr(module, found)
    if inspect.isclass(value):
        _check(value, (), f"{path}: '{found}' cannot be made without arguments")
        return Candidate(f"{path}:{found}", value)
    submit = value if inspect.isroutine(value) else value.submit
    called = found if inspect.isroutine(value) else f"{found}.submit"
    if inspect.isgeneratorfunction(submit) or inspect.isasyncgenfunction(submit):
        raise BuildError(f"{path}: '{called}' is a generator: a call of it would do nothing")
    _check(submit, (None,), f"{path}: '{called}' cannot be called with one event")
    return Candidate(f"{path}:{found}", lambda: value)


def _check(function: Callable[..., object], arguments: tuple[object, ...], message: str) -> None:
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError as error:
        raise BuildError(f"{message}: {error}") from error
    except ValueError:
        # Some functions in C have no signature.
        return


def _only(module: ModuleType, path: str) -> str:
    public = {name: value for name, value in vars(module).items() if not name.startswith("_")}
    own = {
        name: value
        for name, value in public.items()
        # What a file imports is not its consumer, but it may make an object of it.
        if not (inspect.isclass(value) or inspect.isroutine(value))
        or value.__module__ == module.__name__
    }
    for kind in (_submits, inspect.isfunction):
        names = [name for name, value in own.items() if kind(value)]
        if len(names) == 1:
            return names[0]
        if names:
            raise BuildError(
                f"{path} has {len(names)} candidates: {', '.join(names)}. "
                f"Say which: {path}:{names[0]}"
            )
    raise BuildError(
        f"{path} has no consumer: it needs a function of one event, or a class or object with "
        "submit(event)"
    )


def _named(module: ModuleType, path: str, name: str) -> str:
    if not hasattr(module, name):
        raise BuildError(f"{path} has no '{name}'")
    value = getattr(module, name)
    if not (inspect.isroutine(value) or _submits(value)):
        raise BuildError(
            f"'{name}' of {path} is neither a function nor a class or object with submit(event)"
        )
    return name


def _submits(value: object) -> bool:
    return not inspect.ismodule(value) and callable(inspect.getattr_static(value, "submit", None))
