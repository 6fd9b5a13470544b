"""Cuts what may be committed, for a backend whose commits have a limited number of rows."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.streams.base.errors import PenstockError, describe
from penstock.streams.state.changes import Cell, Root, changes_of

__all__ = ["cut"]


def cut(ready: list[Root], most: int, store: str) -> tuple[list[Root], list[Root]]:
    """The roots that are committed now, which change at most this many keys, and the others, which
    are left; all of them are `committable`.

    Each is committed with or after those that have changed one of its keys before it, and wholly.
    Raises PenstockError if one event, or several that have changed each other's keys in turn, which
    must be committed together, change more keys than that. Time: O(n) in their changes.
    """
    root: Root
    if len(_keys(ready)) <= most:
        return ready, []
    keys: set[Cell] = set()
    now: list[Root] = []
    for together in _in_order(ready):
        more = _keys(together)
        if len(more) > most:
            event = describe(together[0].event.value)
            several = f" and {len(together) - 1} others" if len(together) > 1 else ""
            raise PenstockError(
                f"{store} takes the states of {most} keys as one fact, and the event "
                f"{event}{several} changed those of {len(more):,}: have an event change fewer "
                "keys, or use a store without that limit, such as a file or postgresql://"
            )
        if len(keys | more) > most:
            break
        keys |= more
        now += together
    taken = set(now)
    left = [root for root in ready if root not in taken]
    for root in left:
        root.is_left = True
    return [root for root in ready if root in taken], left


def _keys(roots: list[Root]) -> set[Cell]:
    """The keys that roots have changed."""
    changes = (change for root in roots for change in changes_of(root))
    return {change.cell for change in changes if change.cell.room is not None}


def _before(root: Root) -> Iterator[Root]:
    """The roots that have changed a key just before this one."""
    return (one.before.root for one in changes_of(root) if one.before is not None)


def _in_order(roots: list[Root]) -> Iterator[list[Root]]:
    """The roots, each after those that have changed one of its keys before it; those that have
    changed each other's in turn come together.

    These are the strongly connected components, in the order of R. Tarjan, "Depth-First Search and
    Linear Graph Algorithms", SIAM J. Comput. 1972.
    """
    numbers: dict[Root, int] = {}
    lowest: dict[Root, int] = {}
    open_: dict[Root, None] = {}
    for start in roots:
        if start in numbers:
            continue
        numbers[start] = lowest[start] = len(numbers)
        open_[start] = None
        path = [(start, _before(start))]
        while path:
            root, others = path[-1]
            other = next(others, None)
            if other is None:
                path.pop()
                if path:
                    above = path[-1][0]
                    lowest[above] = min(lowest[above], lowest[root])
                if lowest[root] == numbers[root]:
                    together: list[Root] = []
                    while root in open_:
                        together.append(open_.popitem()[0])
                    yield together
            elif other not in numbers:
                numbers[other] = lowest[other] = len(numbers)
                open_[other] = None
                path.append((other, _before(other)))
            elif other in open_:
                lowest[root] = min(lowest[root], numbers[other])
