"""The waits between the attempts at an event."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.streams.base.errors import BadArgument, BuildError
from penstock.streams.base.recorded import recorded
from penstock.streams.base.validation import is_at_least

if TYPE_CHECKING:
    import random

__all__ = ["Backoff", "check_backoff"]


@recorded
@dataclass(frozen=True)
class Backoff:
    """The wait before attempt n + 1: `first * 2 ** (n - 1)` seconds, at most `cap`.

    A random share of up to `jitter`, drawn from `seed`, is subtracted, so that events that failed
    together are not retried together. Raises BadArgument for values out of range. Source:
    "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.
    """

    first: float = 0.1
    cap: float = 30.0
    jitter: float = 0.5
    seed: int = 0

    def __post_init__(self) -> None:
        if not (is_at_least(self.first, 0) and is_at_least(self.cap, 0)):
            raise BadArgument(f"{self}: seconds of at least 0 are needed as first and cap")
        if self.first > self.cap:
            raise BadArgument(f"{self}: a cap of at least first is needed")
        if not (is_at_least(self.jitter, 0) and self.jitter <= 1):
            raise BadArgument(f"{self}: a jitter from 0 to 1 is needed")

    def delay(self, attempts: int, rng: random.Random) -> float:
        """Seconds to wait after `attempts` failed attempts (1 or more)."""
        # 2 ** 64 seconds is above every cap; without the bound the power would overflow a float.
        whole = min(self.cap, self.first * 2.0 ** min(attempts - 1, 64))
        return whole * (1 - self.jitter * rng.random())


def check_backoff(where: str, backoff: object) -> None:
    """Raise BuildError for an option of `where` that is no Backoff and not left out."""
    if backoff is not None and not isinstance(backoff, Backoff):
        raise BuildError(f"{where}(backoff={backoff!r}): give seconds as Backoff(first, cap=...)")
