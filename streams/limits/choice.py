"""Turns the argument `limit=` into a limiter."""

from __future__ import annotations

import inspect
import operator
from typing import Any, cast

from penstock.streams.base.errors import BadArgument, BadLimit, BuildError, describe
from penstock.streams.limits.default import default
from penstock.streams.limits.fixed import Fixed
from penstock.streams.limits.limiter import Limiter

__all__ = ["Limit", "limit_of", "limiter_for"]

Limit = Limiter | tuple[int, int] | int | None


def limiter_for(limit: Limit) -> Limiter:
    """The limiter that `limit=` stands for: itself, `Fixed(limit)` for a number, a default between
    bounds, or the default.

    Raises BuildError for anything else, for invalid bounds, and for a limiter whose first limit is
    not valid.
    """
    if limit is None:
        return default()
    if isinstance(limit, int) and not isinstance(limit, bool):
        try:
            return Fixed(limit)
        except BadArgument as error:
            raise BuildError(f"limit={limit!r}: {error}") from error
    if isinstance(limit, tuple):
        if len(limit) != 2:
            raise BuildError(f"limit={limit!r}: a pair (floor, ceiling) has two numbers")
        try:
            floor, ceiling = limit
            if floor == ceiling:
                return Fixed(floor)  # There is nothing to find out.
            return default(floor=floor, ceiling=ceiling)
        except BadArgument as error:
            raise BuildError(f"limit={limit!r}: {error}") from error
    given = cast(Any, limit)
    if isinstance(given, type) or inspect.isroutine(given):
        raise BuildError(
            f"limit={given.__name__}: this makes limiters but is not one: call it, "
            "as in Fixed(8) or default()"
        )
    if isinstance(limit, int) or not callable(getattr(given, "on_complete", None)):
        raise BuildError(
            f"limit={describe(given)}: give a number, a pair (floor, ceiling), a limiter such as "
            "HillClimb(), or nothing for the default"
        )
    for method in ("on_complete", "on_completions", "on_arrive", "on_depart"):
        function = getattr(given, method, None)
        if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
            raise BuildError(
                f"limit={describe(given)}: {method} is an async function or a generator, which "
                "nothing awaits; make it a plain function"
            )
    try:
        limit_of(limit)
    except Exception as error:
        raise BuildError(f"limit={describe(given)}: {error}") from error
    return limit


def limit_of(limiter: Limiter) -> int:
    """The limit that a limiter proposes. BadLimit if it is not a whole number of at least 1."""
    given = cast(Any, limiter.limit)
    try:
        limit = 0 if isinstance(given, bool) else operator.index(given)
    except TypeError:
        limit = 0
    if limit < 1:
        raise BadLimit(
            f"the limiter '{type(limiter).__name__}' proposes {describe(given)}; "
            "a limit is a whole number of at least 1"
        )
    return limit
