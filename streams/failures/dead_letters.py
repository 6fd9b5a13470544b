"""Dead-letter channels: send failed events to their dead-letter sinks."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from penstock.streams.base.errors import DrainTimeout
from penstock.streams.failures.policy import DeadLetter
from penstock.streams.protocol.acknowledgement import AckHook
from penstock.streams.protocol.event import Ending, Event, give_back_all
from penstock.streams.protocol.identity import identities
from penstock.streams.protocol.stage import send_list
from penstock.streams.protocol.stage_info import MOST_LETTERS

if TYPE_CHECKING:
    from penstock.streams.runtime.context import Run
    from penstock.streams.stages.sink_stage import Sink

__all__ = ["DeadLetterChannel", "channel_to"]

# Seconds that a slow sink has for its clean-up.
_GRACE = 5.0


def channel_to(sink: Sink[DeadLetter], run: Run) -> DeadLetterChannel:
    """The channel of a running pipeline to `sink`. It is flushed when the run is closed."""
    return run.letters.open(sink, DeadLetterChannel)


class DeadLetterChannel(AckHook):
    """The channel to one dead-letter sink: a source of letters, each tied to its event.

    A letter is open until the sink has accepted it. The sources pause while 1,024 letters are open
    beyond the bound of the sink. Events that they have already emitted may still fail, so the open
    letters exceed the events in the pipeline by at most that many. An event that has a place in a
    buffer, as inside a group, keeps it until its letter is accepted.
    """

    def __init__(self, sink: Sink[DeadLetter], run: Run) -> None:
        # Letters that have ended, which shows that the sink is not stuck.
        self._settled = 0
        self._run = run
        self._info = sink.info
        self._waiting: deque[Event[Any]] = deque()
        self._open = 0
        # A sink without a bound may receive any number of letters before it accepts the first.
        self._most = sink.info.most_open
        self._rest: Iterator[Event[Any]] = iter(())
        self._demand = 0
        self._done = self._sink_closed = self._sending = False
        self._when_closed: asyncio.Future[None] | None = None
        self._overdue: asyncio.TimerHandle | None = None
        self._subscriber = sink.open(run, self._closed)
        self._subscriber.info = sink.info
        self._subscriber.on_subscribe(self)

    def send(
        self,
        event: Event[Any],
        error: BaseException,
        stage: str,
        attempts: int,
        accepted: Callable[[], None] = lambda: None,
    ) -> None:
        """Send a letter about `event`, which is acknowledged when the sink has accepted the letter.

        `accepted` is called then.
        """
        about = DeadLetter(
            *(event.value, error, stage, attempts, event.created, self._run.now(), event.token),
            identities(event),
        )
        if self._run.errors.on_letter is not None:
            self._run.errors.on_letter(about)
        letter = Event(
            about,
            event.created,
            _Given(event, error, accepted),
            event.token,
        )
        letter.turn = event.place()
        event.end_turn()
        self.put(letter)

    def put(self, letter: Event[Any]) -> None:
        """Send a letter after all that wait."""
        if self._done:
            letter.give_back()
        else:
            self._waiting.append(self._opened(letter))
            self._send_waiting()

    def _opened(self, letter: Event[Any]) -> Event[Any]:
        letter.outer = (letter.origin, letter.outer)
        letter.origin = self
        self._open += 1
        return letter

    def put_all(self, letters: Iterator[Event[Any]]) -> None:
        """Send any number of letters, each made when the sink requests it."""
        self._rest = chain(self._rest, map(self._opened, letters))
        self._send_waiting()

    async def flush(self) -> None:
        """Complete the letters, and wait until the sink has closed.

        Raises DrainTimeout if it accepts none for the drain deadline.
        """
        self._complete_if_sent()
        if self._sink_closed:
            return
        if self._when_closed is None:
            self._when_closed = self._run.loop.create_future()
        closed = self._when_closed
        settled = -1
        # A slow sink is waited for, a stuck one is not.
        while self._settled > settled:
            settled = self._settled
            if (await asyncio.wait([closed], timeout=self._run.drain_deadline))[0]:
                return
        self.hurry(0)
        await asyncio.wait([closed], timeout=_GRACE)
        raise DrainTimeout(
            f"{self._info.name} has taken no dead letter for {self._run.drain_deadline:g} s at the "
            "end; the events of those that are left have failed and are not acknowledged. Find out "
            "why it hangs, or raise drain_deadline."
        )

    def hurry(self, grace: float = _GRACE) -> None:
        """Wait at most `grace` seconds more for the sink; then take back its letters."""
        if not self._sink_closed and self._overdue is None:
            self._overdue = self._run.call_later(grace, self._info, self._give_up)

    def _give_up(self) -> None:
        self.cancel()
        self._subscriber.cancel()

    def request(self, n: int, /) -> None:
        self._demand += n
        self._send_waiting()
        if self._when_closed is not None:
            self._complete_if_sent()

    def _complete_if_sent(self) -> None:
        if not self._done and not self._waiting:
            self._done = True
            self._subscriber.on_completed()

    def _send_waiting(self) -> None:
        # A sink may request the next letter while it receives one.
        if self._sending:
            return
        self._sending = True
        try:
            while (self._waiting or self._take_one()) and self._demand:
                self._demand -= 1
                send_list(self._subscriber, [self._waiting.popleft()])
        finally:
            self._sending = False
        self._hold_or_release()

    def ended(
        self, events: list[Event[Any]], ending: Ending, error: BaseException | None, /
    ) -> None:
        self._open -= len(events)
        self._settled += len(events)
        # While letters are sent, the check is made afterwards.
        if not self._sending:
            self._hold_or_release()

    def _hold_or_release(self) -> None:
        open_, most = self._open, self._most
        if most is None:
            open_, most = len(self._waiting), MOST_LETTERS
        if open_ >= most:
            self._run.pauses.hold(self)
        elif open_ <= most - MOST_LETTERS // 2:
            self._run.pauses.release(self)

    def _take_one(self) -> bool:
        self._waiting.extend(islice(self._rest, 1))
        return bool(self._waiting)

    def cancel(self) -> None:
        self._done = True
        self._rest = iter(())
        waiting, self._waiting = self._waiting, deque()
        give_back_all(waiting)

    def _closed(self, error: BaseException | None) -> None:
        self._sink_closed = True
        if self._overdue is not None:
            self._overdue.cancel()
        if self._when_closed is not None and not self._when_closed.done():
            self._when_closed.set_result(None)
        if error is not None:
            self.cancel()
            self._run.failed(error)
        else:
            self._run.pauses.release(self)


class _Given:
    """The origin of a letter, whose outcome decides the outcome of the failed event."""

    __slots__ = ("_accepted", "_error", "_event")

    def __init__(
        self, event: Event[Any], error: BaseException, accepted: Callable[[], None]
    ) -> None:
        self._accepted = accepted
        self._event = event
        self._error = error

    def settle(self, events: list[Event[Any]], ending: Ending, why: Any, /) -> None:
        # One that is dropped is there already.
        if ending <= Ending.FINISHED:
            self._accepted()
        self._event.fail(self._error, acknowledged=ending < Ending.RETURNED)
