"""The time for which demand was unmet: requested, and nothing came."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.streams.diagnostics.loop_lag import BLOCKED

if TYPE_CHECKING:
    from penstock.streams.runtime.sources import Pauses

__all__ = ["UnmetDemand"]


class UnmetDemand:
    """The seconds for which events were requested and none came, summed up over a run.

    A source that is paused, drained or not asked for anything is not silent, so that time does not
    count.
    """

    def __init__(
        self, now: Callable[[], float], pauses: Pauses, when_resumed: Callable[[], object]
    ) -> None:
        self._now = now
        self._pauses = pauses
        # Called when the sources go on after a pause, before the time runs again.
        self._when_resumed = when_resumed
        self._requested = 0
        self._total = self._resumed = 0.0
        self._is_held = pauses.are_held
        # Since when it is unmet; None while it is not.
        self._since: float | None = None
        # Called once each when it is unmet again.
        self._waiting: dict[Callable[[], object], None] = {}
        pauses.watchers.append(self._note)

    def close(self) -> None:
        """Nothing more is requested of the source, and nothing comes."""
        self._requested = 0
        self._note()
        self._waiting.clear()
        if self._note in self._pauses.watchers:
            self._pauses.watchers.remove(self._note)

    @property
    def is_unmet(self) -> bool:
        """Whether the time runs."""
        return self._since is not None

    @property
    def seconds(self) -> float:
        """The time so far."""
        since = self._since
        return self._total if since is None else self._total + self._now() - since

    @property
    def since_pause(self) -> float:
        """The time since the last pause: what came meanwhile may still be on its way to us."""
        return self.seconds - self._resumed

    def requested(self, n: int) -> None:
        """So many more events are requested."""
        self._requested += n
        if self._since is None:
            self._note()

    def came(self, n: int) -> None:
        """So many events have come."""
        self._requested -= n
        if not self._requested:
            self._note()

    def blocked(self, late: float) -> None:
        """A timer has come so many seconds late: what the source had sent could not come either."""
        if late > BLOCKED and self._since is not None:
            self._since = min(self._now(), self._since + late)

    def when_unmet(self, call: Callable[[], object]) -> None:
        """Have this called when the time runs again: once, however often it is asked for."""
        self._waiting[call] = None

    def _note(self) -> None:
        was_held, self._is_held = self._is_held, self._pauses.are_held
        if was_held and not self._is_held:
            self._when_resumed()
            self._resumed = self._total
        is_unmet = self._requested > 0 and not self._is_held
        if is_unmet is (self._since is not None):
            return
        if is_unmet:
            self._since = self._now()
            waiting, self._waiting = self._waiting, {}
            for call in waiting:
                call()
        else:
            self._total, self._since = self.seconds, None
