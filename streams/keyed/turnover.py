"""When keys that fill a buffer give way to others."""

from __future__ import annotations

__all__ = ["Turnover"]

# How many events came lately. Chosen: several times as many as a burst is likely to have.
_LATELY = 2**16

# Seconds until room is made on trial, at first and at most.
_FIRST, _LAST = 0.2, 5.0


class Turnover:
    """How many events came, and how many keys lost their last waiting event (`ended`), lately.

    Where keys come and go, others will use the room that is made for them. Where all wait all the
    time, nothing shows that the source has others behind those that fill the buffer: room is made
    on trial, each time after twice as long, and at least every five seconds.
    """

    def __init__(self) -> None:
        self.ended = 0
        self._came = 0
        # How long after one trial the next one is due, and when that is; None before the first.
        self._pause = _FIRST
        self._trial_at: float | None = None

    def came(self, count: int) -> None:
        """Note events that came."""
        self._came += count
        if self._came > _LATELY:
            self._came //= 2
            self.ended //= 2

    @property
    def come_and_go(self) -> bool:
        """Whether there are keys whose events do not always wait: of the events that came lately,
        at least one in 64 was the last that waited of its key."""
        return self.ended * 64 >= self._came

    def until_room(self, now: float) -> float:
        """The seconds until it is to be asked again whether room is to be made for other keys; 0:
        it is to be made now."""
        if self.come_and_go:
            self._pause, self._trial_at = _FIRST, None
            return 0.0
        if self._trial_at is None:
            self._trial_at = now + self._pause
        if now < self._trial_at:
            # Looked at more often, because keys may end.
            return min(_FIRST / 2, self._trial_at - now)
        self._pause = min(2 * self._pause, _LAST)
        self._trial_at = now + self._pause
        return 0.0
