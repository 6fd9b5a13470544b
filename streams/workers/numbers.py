"""The statistics of a stage that runs in several workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from operator import itemgetter
from typing import Any, cast

__all__ = ["together"]

# Numbers that are the same in all workers, or of which the greatest says most.
_GREATEST = ("bound", "held_back", "size", "hottest_waiting")


# Of the keys in which most events wait.
_HOTTEST = 5
_waiting: Callable[[dict[str, Any]], int] = itemgetter("waiting")


def together(workers: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The numbers of one stage in all workers: sums, but for bounds and sizes.

    The hottest key is that of the worker in which most events of one key wait. Other values are
    those of the first worker.
    """
    found: dict[str, Any] = {}
    for numbers in workers:
        for name, value in numbers.items():
            before = found.get(name)
            if before is None or isinstance(value, str | bool):
                found[name] = copy(value)
            elif name in _GREATEST:
                found[name] = max(before, value)
            elif isinstance(value, int | float):
                found[name] = before + value
            elif isinstance(value, dict):
                counts = cast("dict[Any, int]", value)
                for key, count in counts.items():
                    before[key] = before.get(key, 0) + count
    keys = [key for numbers in workers for key in numbers.get("hottest_keys", ())]
    if keys:
        found["hottest_keys"] = sorted(keys, key=_waiting, reverse=True)[:_HOTTEST]
    for numbers in workers:
        if "hottest" in numbers and numbers["hottest_waiting"] == found["hottest_waiting"]:
            found["hottest"] = numbers["hottest"]
            break
    return found
