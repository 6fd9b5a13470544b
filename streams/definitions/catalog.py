"""All that a definition can use by a public name: sources, operators, sinks, and their options."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from inspect import isclass, isfunction, signature, unwrap
from typing import Any, Literal, get_args, get_origin

from penstock.streams.base.recorded import is_recorded
from penstock.streams.definitions.names import public
from penstock.streams.definitions.signatures import types_of
from penstock.streams.stages.sink_stage import Sink
from penstock.streams.stages.stream import Stream

__all__ = ["Kind", "catalog", "kind_of"]

Kind = Literal["source", "operator", "sink", "value"]


@cache
def catalog() -> dict[str, Callable[..., Any]]:
    """Each function, and each class, that records its calls, by its name in files."""
    package = sys.modules["penstock"]
    found: dict[str, Any] = {}
    for name in package.__all__:
        found[name] = getattr(package, name)
    for module in ("agg", "ops"):
        home = getattr(package, module)
        for name in getattr(home, "__all__", dir(home)):
            # Of two with one name, that of `penstock` needs no `ops.`.
            known = name if module == "ops" and name not in found else f"{module}.{name}"
            if getattr(home, name) is not found.get(name):
                found[known] = getattr(home, name)
    found["Store.memory"] = public("Store.memory")
    return {name: one for name, one in sorted(found.items()) if _is_used(one)}


def _is_used(one: Any) -> bool:
    return is_recorded(one) or (
        isfunction(one) and (one.__module__ or "").startswith("reactivex.operators")
    )


def kind_of(function: Callable[..., Any]) -> Kind:
    """What the function makes, by the type of its result."""
    if isclass(function):
        return "sink" if issubclass(function, Sink) else "value"
    (made, *_) = types_of(signature(unwrap(function)).return_annotation, function)
    if get_origin(made) is _CALLABLE:
        (first, *_), _ = get_args(made)
        # What wraps a handler takes it in place of a stream.
        return "value" if get_origin(first) is _CALLABLE else "operator"
    made = get_origin(made) or made
    if not isclass(made):
        return "operator"
    if issubclass(made, Stream):
        return "source"
    if issubclass(made, Sink):
        return "sink"
    return "operator" if "__call__" in vars(made) else "value"


_CALLABLE = get_origin(Callable[[], None])
