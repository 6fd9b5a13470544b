"""What a function of this library was called with, kept on what it returned.

An operator is a closure, and a sink hides its options: `pipeline.definition()`, `penstock diff`
and files of definitions read them from here, whatever the function is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, NamedTuple, TypeVar, cast

__all__ = ["Call", "call_of", "is_recorded", "recorded"]

F = TypeVar("F", bound=Callable[..., Any])


class Call(NamedTuple):
    """A call: the function, and what it was given."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    options: Mapping[str, Any]


def recorded(make: F) -> F:
    """The function, or the class, with a record of its call on each result.

    The arguments are kept as they are given; nothing is looked at until `call_of` is asked.
    """
    if isinstance(make, type):
        _record_class(make)
        return cast(F, make)

    @wraps(make)
    def recording(*args: Any, **options: Any) -> Any:
        result = make(*args, **options)
        _note(result, Call(recording, args, options))
        return result

    cast(Any, recording).is_recorded = True
    return cast(F, recording)


def _record_class(made: Any) -> None:
    init = made.__init__

    @wraps(init)
    def recording(self: Any, *args: Any, **options: Any) -> None:
        init(self, *args, **options)
        # Not what a subclass has given to the class above it.
        if type(self) is made:
            _note(self, Call(made, args, options))

    made.__init__ = recording
    made.is_recorded = True


def _note(result: Any, call: Call) -> None:
    # What is frozen has room nevertheless.
    object.__setattr__(result, "made_by", call)


def call_of(made: Any) -> Call | None:
    """The call that has made it; None if no record was kept."""
    call = getattr(made, "made_by", None)
    return call if isinstance(call, Call) else None


def is_recorded(function: object) -> bool:
    """Whether it is a function, or a class, that keeps a record of its calls."""
    return "is_recorded" in getattr(function, "__dict__", ())
