"""The entrance of an inbox: the reader of the present run, and the callers that wait for room.

Callers come from the loop of the run, from other loops before a run begins, and from threads.
"""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict, deque
from contextlib import suppress
from typing import Any, Generic, Protocol, TypeGuard, TypeVar

from penstock.streams.base.clock import running_loop
from penstock.streams.base.errors import BuildError, InboxClosed
from penstock.streams.inbox.callers import (
    Accepted,
    Caller,
    Ended,
    OnLoop,
    Refusal,
    closed,
    elsewhere,
    refuse,
)
from penstock.streams.protocol.answers import Answer
from penstock.streams.protocol.event import Event
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run

__all__ = ["Entrance", "Reading"]

T = TypeVar("T")


class Reading(Protocol):
    """The source stage of a run that reads an inbox, as its callers see it."""

    info: StageInfo
    run: Run

    @property
    def has_room(self) -> bool: ...

    def take_in(self, value: Any, ended: Ended | None, answer: Answer | None) -> Event[Any]: ...

    def wake_soon(self) -> None: ...

    def admit(self) -> None: ...


class Entrance(Generic[T]):
    """Connects an inbox's reader with the callers that wait for room; outlives the runs."""

    def __init__(self) -> None:
        self.reader: Reading | None = None
        self.callers: OrderedDict[Accepted, Caller[T]] = OrderedDict()
        self._from_threads: deque[tuple[Accepted, Caller[T]]] = deque()
        self.is_closed = False
        # The last run that has begun to read, or has ended.
        self._run: Run | None = None
        # Held by a thread that enters, and by the loop when a run begins or ends, so that no caller
        # is left waiting for a run that is over.
        self._lock = threading.Lock()

    def open(self, reader: Reading) -> None:
        """A run begins."""
        with self._lock:
            if self.reader is not None:
                raise BuildError(
                    "an inbox belongs to one run at a time, and this one is being read: wait "
                    "until that pipeline has ended, or make an inbox for each"
                )
            self.reader = reader
            self._run = reader.run
            self.is_closed = False
            self._refuse_elsewhere(elsewhere())

    def end(self, run: Run) -> None:
        """A run has ended, which may never have read this inbox."""
        with self._lock:
            if self.reader is not None:
                return
            self._run = run
            self._refuse_elsewhere(closed())
        self.close()

    def _refuse_elsewhere(self, refusal: Refusal) -> None:
        """Refuse the callers that wait on other loops than that of the run."""
        for accepted in [one for one in self.callers if self._is_elsewhere(one)]:
            del self.callers[accepted]
            # Its loop may be gone, with all its waiting callers.
            with suppress(RuntimeError):
                accepted.get_loop().call_soon_threadsafe(refuse, accepted, refusal)

    def close(self) -> None:
        """Refuse all callers that wait for room."""
        with self._lock:
            self.is_closed = True
        self.let_threads_in_line()
        while self.callers:
            accepted, _ = self.callers.popitem(last=False)
            if not accepted.done():
                accepted.set_result(closed())

    def reader_with_room(self) -> Reading | None:
        """The reader, if it takes an event now; None if the caller has to wait."""
        if self.is_closed:
            raise self.refused(closed())
        reader = self.reader
        if reader is None or self.callers:
            return None
        if reader.run.loop is not running_loop():
            raise elsewhere()
        return reader if reader.has_room else None

    def enter(self, accepted: OnLoop, caller: Caller[T]) -> None:
        """Wait for room, or for a run to begin."""
        # Before the run begins its loop is unknown.
        with self._lock:
            self._check_open()
            if self._is_elsewhere(accepted):
                raise elsewhere()
            self.callers[accepted] = caller

    def leave(self, accepted: OnLoop) -> None:
        """Stop waiting, and withdraw an event taken in meanwhile."""
        with self._lock:
            self.callers.pop(accepted, None)
        if accepted.done() and not accepted.cancelled():
            answer = accepted.result()
            if not isinstance(answer, Exception):
                answer()

    def _is_elsewhere(self, accepted: Accepted) -> TypeGuard[OnLoop]:
        """Whether this caller's loop is not that of the run."""
        return (
            self._run is not None
            and isinstance(accepted, asyncio.Future)
            and accepted.get_loop() is not self._run.loop
        )

    def enter_from_thread(self, accepted: Accepted, caller: Caller[T]) -> None:
        """Wait for room, in any thread."""
        with self._lock:
            self._check_open()
            self._from_threads.append((accepted, caller))
            if self.reader is not None:
                self.reader.run.call_soon_threadsafe(self.reader.info, self.reader.admit)

    def let_threads_in_line(self) -> None:
        """Add the threads that have arrived to the callers."""
        while self._from_threads:
            accepted, caller = self._from_threads.popleft()
            self.callers[accepted] = caller

    def _check_open(self) -> None:
        if self.is_closed:
            raise self.refused(closed())

    def refused(self, refusal: Exception) -> Exception:
        """A refusal, if possible with the error that ended the run."""
        if self._run is not None and isinstance(refusal, InboxClosed):
            refusal.__cause__ = self._run.errors.ended_by
        return refusal
