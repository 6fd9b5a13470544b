"""The limiter that is used where none is named."""

from __future__ import annotations

from streams.limits.elastic import Elastic

__all__ = ["default"]


def default(floor: int = 1, ceiling: int = 1000) -> Elastic:
    """Return a fresh default limiter that stays within `floor` and `ceiling`.

    Errors: BadArgument unless the bounds are ints with 1 <= floor <= ceiling.
    """
    return Elastic(floor, ceiling)
