"""How many calls fail, and whether that is more than usual."""

from __future__ import annotations

from math import sqrt

__all__ = ["NATURAL", "Failures", "exceeds", "refused"]

_CALM = 10

# As few of them as this may be chance, whatever the share.
_FEWEST = 3

NATURAL = 0.1
"""A share of failures that any busy service may have."""

# A share of failures by which to know, soon after a limit was raised, that it is too high.
_REFUSED = 0.2


def exceeds(failed: float, calls: float, share: float) -> bool:
    """Whether `failed` of `calls` is more than `share`, beyond chance (two standard errors)."""
    expected = share * calls
    return failed >= _FEWEST and failed > expected + 2 * sqrt(expected)


def refused(usual: float) -> float:
    """The share above which calls fail because of a limit, where `usual` failed before."""
    return max(_REFUSED, 2 * usual)


class Failures:
    """Calls, how many of them failed, and the fewest in flight among which one that failed began.

    Where a service refuses what is one too many, that is the first number that is too many.
    """

    __slots__ = ("calls", "failed", "fewest")

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget all."""
        self.calls = self.failed = 0.0
        self.fewest = 0

    @property
    def share(self) -> float:
        """Of the calls that failed, as if some more had succeeded: one failure is no habit."""
        return self.failed / (self.calls + _CALM)

    def add(self, in_flight: int, *, failed: bool) -> None:
        """Take in one call, which began as one of `in_flight`."""
        self.calls += 1
        if failed:
            self.failed += 1
            self.fewest = in_flight if self.failed == 1 else min(self.fewest, in_flight)

    def exceed(self, share: float) -> bool:
        """Whether more than this share of the calls failed, beyond chance."""
        return exceeds(self.failed, self.calls, share)

    def fade(self) -> None:
        """Let what was count for less than what is to come: for about ten calls of `fade`."""
        self.calls *= 0.9
        self.failed *= 0.9

    def add_all(self, other: Failures) -> None:
        """Take in all calls of `other`."""
        self.calls += other.calls
        self.failed += other.failed

    def learn(self, calls: int, failed: int) -> None:
        """Take in some calls at once, after which those before count for less."""
        self.fade()
        self.calls += calls
        self.failed += failed
