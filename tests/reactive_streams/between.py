"""The protocol that stages speak among themselves, as the tests of the rules speak it.

Nothing else here knows that protocol: where it changes, so does this file, and no test. `Below`
stands where the next stage would, with no door between, and takes nothing on trust: what a door
would put right is recorded as it comes. It keeps the stages' own contract: it asks for at least 1,
and asks for nothing and cancels nothing once the stream has ended or was cancelled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from streams import Event, Flowable
from streams.run import Run
from streams.testing import Probe

__all__ = ["Below", "attached"]


class Below(Probe[Any]):
    """A probe that is attached to a stage itself.

    `takes_chunks`: it says that it takes several events in one call, as queues and sinks do.
    `on_value(below)` is called inside each signal that brings a value.
    """

    def __init__(
        self,
        request: int | None = None,
        *,
        takes_chunks: bool = False,
        hold: bool = False,
        on_value: Callable[[Below], None] | None = None,
    ) -> None:
        super().__init__(request, hold=hold, on_event=lambda _, __: self._on_value(on_value))
        self.chunks = takes_chunks
        self.left = False

    def _on_value(self, on_value: Callable[[Below], None] | None) -> None:
        if on_value is not None:
            on_value(self)

    @property
    def is_over(self) -> bool:
        """Whether there is nobody above any more."""
        return self.ended or self.left

    def request(self, n: int) -> None:
        if not self.is_over:
            super().request(n)

    def cancel(self) -> None:
        if not self.is_over:
            self.left = True
            super().cancel()

    def on_next(self, event: Event[Any], /) -> None:
        # At once, for a stage that has lost count may never stop.
        assert len(self.values) < self.requested, f"{event.value!r} was not asked for"
        super().on_next(event)

    def on_chunk(self, events: list[Event[Any]], /) -> None:
        for event in events:
            self.on_next(event)


def attached(stream: Flowable[Any], below: Below, run: Run) -> None:
    """Put `below` under the last stage of `stream`."""
    run.on_failure(below.on_error)
    try:
        # Not by `attach`, which puts a guard before what is not the library's own.
        stream._attach(below, run)
    except Exception as error:
        below.on_error(error)
