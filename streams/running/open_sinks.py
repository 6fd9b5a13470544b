"""The sinks of one run, from when they are opened until all have closed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from penstock.streams.base.errors import CALL_ERRORS, BuildError, WrongType, describe, own_error
from penstock.streams.protocol.blame import note_stage
from penstock.streams.protocol.stage import UNCONNECTED, Subscriber
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.running.broadcast import Broadcast
from penstock.streams.runtime.context import Run
from penstock.streams.stages.sink_stage import BaseSinkStage, Closed
from penstock.streams.stages.user_stage import guarded

__all__ = ["OpenSinks", "Opening"]

Opening = Callable[[Run, Closed], BaseSinkStage]
"""Opens a sink for a run, as `Sink.open` does."""


class OpenSinks:
    """Opens the sinks of a run, closes them together, and reports how.

    `failed` is called with the error of each that has closed with one, and `closed` when none of
    them is open any more.
    """

    def __init__(
        self, run: Run, failed: Callable[[BaseException], None], closed: Callable[[], None]
    ) -> None:
        self.stages: list[BaseSinkStage] = []
        """Their stages, also when they have closed."""
        self._run = run
        self._failed = failed
        self._closed = closed
        # Those that are open, and what their signals go to.
        self._open: dict[BaseSinkStage, Subscriber[Any]] = {}
        self._cancelled = False
        # The index of one that could not be opened; it may close what it has opened of itself.
        self._refused: int | None = None
        self._head: BaseSinkStage | Broadcast | None = None

    def check_connected(self) -> None:
        """Raise BuildError if the stream that they read has not subscribed to them."""
        if self._open and self._head is not None and self._head.upstream is UNCONNECTED:
            raise BuildError(
                f"nothing is sent to {self.stages[0].info}: a source of your own has to call "
                "`start()` of its stage, and an operator `source.attach(stage, run)`"
            )

    @property
    def are_open(self) -> bool:
        """Whether any of them is open."""
        return bool(self._open)

    def open(self, plan: Iterable[tuple[StageInfo, Opening]]) -> BaseSinkStage | Broadcast:
        """Open each of them. Returns the stage that reads the stream."""
        for info, opening in plan:
            self._run.sinks.append(info)
            try:
                stage = opening(self._run, partial(self._sink_closed, len(self.stages)))
                _check(stage)
            except BaseException as error:
                self._refused = len(self.stages)
                note_stage(error, info)
                raise
            stage.info = info
            self.stages.append(stage)
            self._open[stage] = guarded(stage, info, self._run)
        stages = list(self._open.values())
        self._head = head = self.stages[0] if len(stages) == 1 else Broadcast(stages)
        return head

    def cancel(self) -> None:
        """Cancel the stream and those that are open: they return what they have not accepted."""
        if self._head is not None and self._open and not self._cancelled:
            # An error that is raised by this cancels again.
            self._cancelled = True
            self._run.call(None, self._head.upstream.cancel)
        for stage in list(self._open):
            try:
                stage.cancel()
            except BaseException as raised:
                error = own_error(raised) if isinstance(raised, CALL_ERRORS) else raised
                note_stage(error, stage.info)
                self._sink_closed(self.stages.index(stage), error)
                if isinstance(raised, KeyboardInterrupt | SystemExit):
                    raise

    def _sink_closed(self, index: int, error: BaseException | None) -> None:
        if index == self._refused:
            return
        self._open.pop(self.stages[index], None)
        if error is not None:
            self._failed(error)
            if not (isinstance(self._head, Broadcast) and self._head.has_ended):
                for signals in list(self._open.values()):
                    signals.on_completed()
        if not self._open:
            self._closed()


def _check(stage: object) -> None:
    if not isinstance(stage, BaseSinkStage):
        raise WrongType(f"open() returned {describe(stage)}, and not a SinkStage")
