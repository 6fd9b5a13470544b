"""What users may write for `limit=`."""

from __future__ import annotations

from typing import Any, cast

from streams.errors import BuildError
from streams.limits.default import default
from streams.limits.fixed import Fixed
from streams.limits.limiter import Limiter

__all__ = ["Limit", "limiter_for"]

Limit = Limiter | tuple[int, int] | None


def limiter_for(limit: Limit) -> Limiter:
    """The limiter that `limit=` stands for: itself, a default between bounds, or the default.

    Raises BuildError for anything else, and for bounds that are none.
    """
    if limit is None:
        return default()
    if isinstance(limit, tuple):
        try:
            floor, ceiling = limit
            if floor == ceiling:
                return Fixed(floor)  # There is nothing to find out.
            return default(floor=floor, ceiling=ceiling)
        except (TypeError, ValueError) as error:
            raise BuildError(f"limit={limit!r}: {error}") from error
    given = cast(Any, limit)
    if isinstance(given, int) or not hasattr(given, "on_complete") or not hasattr(given, "limit"):
        raise BuildError(
            f"limit={given!r}: give a limiter such as Fixed(8), a pair (floor, ceiling), or "
            "nothing for the default"
        )
    return limit
