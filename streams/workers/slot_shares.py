"""The division of one limit among workers.

Each worker has at most the slots that it was granted in use, and all of them together no more than
the limit. A slot that is taken back from a worker counts as in use until it cannot be: until the
worker has confirmed it, unless the worker has too few keys, or events, to use it.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["Lending", "shares"]


def shares(limit: int, needs: Sequence[int]) -> list[int]:
    """Divide `limit` by need: as equally as possible, and no more than needed while others lack.

    What nobody needs is divided equally. The sum is `limit`. Time: O(n log n) for n needs.
    """
    order = sorted(range(len(needs)), key=needs.__getitem__)
    found = [0] * len(needs)
    left = limit
    for place, at in enumerate(order):
        found[at] = min(needs[at], left // (len(order) - place))
        left -= found[at]
    for place, at in enumerate(order):
        extra = left // (len(order) - place)
        found[at] += extra
        left -= extra
    return found


class Lending:
    """The slots of `limit` that `workers` workers have.

    `granted` is what each was told last, `held` the most that each may have in use.
    """

    def __init__(self, limit: int, workers: int) -> None:
        self.limit = limit
        self.granted = [0] * workers
        self.held = [0] * workers

    @property
    def free(self) -> int:
        """Slots that no worker can have in use; below 0 after the limit fell."""
        return self.limit - sum(self.held)

    def balance(self, needs: Sequence[int], active: int) -> list[int]:
        """Grant slots by need to the first `active` workers, and none to others; returns those that
        must be told.

        `needs` are the most calls that each worker could have in flight now. Nothing changes while
        none lacks a slot that it should have.
        """
        granted = self.granted
        if self._is_balanced(needs, active):
            return []
        wanted = [0] * len(needs)
        # A worker without work has a slot, so that it may begin at once.
        wanted[:active] = shares(self.limit, [max(1, need) for need in needs[:active]])
        told: list[int] = []
        for at, share in enumerate(wanted):
            if share < granted[at]:
                granted[at] = share
                # More than it has keys or events it cannot use, and it reads this before new ones.
                self.held[at] = max(share, min(self.held[at], needs[at]))
                told.append(at)
        for at, share in enumerate(wanted):
            more = min(share - granted[at], self.free + self.held[at] - granted[at])
            if more > 0:
                granted[at] += more
                self.held[at] = max(self.held[at], granted[at])
                told.append(at)
        return told

    def _is_balanced(self, needs: Sequence[int], active: int) -> bool:
        """Whether no worker lacks a slot, or nobody has one to spare. Time: O(workers)."""
        free, granted = self.free, self.granted
        if free < 0 or any(granted[active:]):
            return False
        least = most = None
        spare = free > 0
        for need, slots, held in zip(needs[:active], granted, self.held, strict=False):
            if need > slots or not slots:
                least = slots if least is None or slots < least else least
                # What was taken back from it, and that it has not confirmed, it may have again.
                spare = spare or held > slots
            elif need < slots and slots > 1:
                spare = True
            if most is None or slots > most:
                most = slots
        return least is None or not (spare or (most or 0) > least + 1)

    def confirmed(self, worker: int) -> None:
        """A worker has no more slots in use than it was granted last."""
        self.held[worker] = self.granted[worker]

    def lost(self, worker: int) -> None:
        """A worker has ended, and all its calls with it."""
        self.granted[worker] = self.held[worker] = 0
