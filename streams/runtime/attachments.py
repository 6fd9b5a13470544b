"""Calls that wait until all stages of a stream are attached."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

__all__ = ["Attachments"]


class Attachments:
    """The streams of a run that are being attached; one may attach others."""

    def __init__(self) -> None:
        self._open = 0
        self._waiting: deque[Callable[[], object]] = deque()

    def begin(self) -> None:
        """A stream is being attached, until `end`."""
        self._open += 1

    def end(self) -> None:
        """Make the calls that wait when the outermost stream is attached, and what they attach."""
        if self._open == 1:
            while self._waiting:
                self._waiting.popleft()()
        self._open -= 1

    def then(self, call: Callable[[], object]) -> None:
        """Call `call` when all is attached that is being attached now."""
        if self._open:
            self._waiting.append(call)
        else:
            call()
