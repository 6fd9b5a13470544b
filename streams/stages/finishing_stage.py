"""The base of the stages whose events take time, which finish before the stream ends."""

from __future__ import annotations

from penstock.streams.protocol.stage import CLOSED, FAILED, OPEN
from penstock.streams.stages.demand_stage import BaseDemandStage

__all__ = ["FinishingStage"]


class FinishingStage(BaseDemandStage):
    """Ends when nothing is in progress and all results are out, also after an error."""

    __slots__ = ()

    def is_busy(self) -> bool:
        """Whether anything is in progress, waits, or is on its way down."""
        raise NotImplementedError

    def give_back_unstarted(self) -> None:
        """Return the events that have not begun: none will."""
        raise NotImplementedError

    def stop(self, error: BaseException) -> None:
        """Begin nothing more; what is in progress may finish before the error passes on."""
        if self.error is not None or self.state >= CLOSED:
            if error is not self.error:
                self.run.late_error(error)
            return
        self.error = error
        before, self.state = self.state, FAILED
        # Before the cancel, in which a stage of the user's own may raise a second error.
        self.run.stopping(error)
        if before is OPEN:
            self.cancel_upstream()
        self.give_back_unstarted()

    def on_error(self, error: BaseException, /) -> None:
        self.end()
        self.stop(error)
        self._drain()

    def _end_if_idle(self) -> None:
        if self.state < CLOSED and not self.is_busy():
            self.complete()
