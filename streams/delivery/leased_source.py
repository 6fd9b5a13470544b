"""The part of a source that is the same for all brokers which lend their events to one reader."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from typing import Any, Generic, TypeVar

from penstock.streams.base.errors import BadLine
from penstock.streams.base.take_front import taken
from penstock.streams.failures.dead_letters import channel_to
from penstock.streams.failures.policy import OnBadInput, Route
from penstock.streams.protocol.event import Event
from penstock.streams.protocol.stage import Subscriber
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.runtime.timer import Timer
from penstock.streams.stages.source_stage import BaseSourceStage
from penstock.streams.stages.time_slice import fitting

__all__ = ["LeasedSource"]

T = TypeVar("T")


class LeasedSource(BaseSourceStage, Generic[T]):
    """One run of a source whose events belong to it for as long as it has a lease of them.

    What a broker has delivered waits in `arrived` for demand. What is not held any more does not
    leave, and does not begin in a stage. An adapter of a broker has to implement `open`, `holds`,
    `event` and `give_back`; an event that it was given without a value is `bad`.
    """

    # The bad event that ends the stream, once the events before it are out.
    failure: BadLine | None = None
    _is_open = False

    def __init__(
        self,
        downstream: Subscriber[Any],
        run: Run,
        info: StageInfo,
        on_bad: OnBadInput = "report",
        retry_after: float = 0.0,
    ) -> None:
        super().__init__(downstream, run, info)
        self.arrived: deque[T] = deque()
        self.failed: set[T] = set()
        """The tokens that have failed, and have not been given again since."""
        self.from_wall = run.now() - run.wall()
        """Seconds to add to a time of the wall clock to get the loop's time."""
        self._on_bad = on_bad
        self.letters = channel_to(on_bad.sink, run) if isinstance(on_bad, Route) else None
        self._retry_after = retry_after
        # Which have failed, and when they are due again.
        self._later: deque[tuple[float, list[T]]] = deque()
        self._retrying = Timer(run, info, self._retry)
        run.lessors.append(self)

    # What an adapter implements.

    def open(self) -> None:
        """Begin to read: there is demand for the first time."""
        raise NotImplementedError

    def holds(self, token: Any, /) -> bool:
        """Whether it is certain that no other reader has an event, which is about to begin."""
        raise NotImplementedError

    def event(self, token: T, now: float, /) -> Event[Any] | None:
        """The event of what has arrived; None if it ends here, without one."""
        raise NotImplementedError

    def give_back(self, tokens: Iterable[T], /) -> None:
        """Leave what has not begun here to other readers."""
        raise NotImplementedError

    def refuse(self, token: T, /) -> None:
        """Tell the broker never to deliver this bad input again."""
        raise NotImplementedError

    def has_room(self) -> None:
        """All that may leave is out: there may be demand for more."""

    @property
    def may_send(self) -> bool:
        """Whether anything may leave at all."""
        return True

    def is_held(self, token: T, /) -> bool:
        """Whether what has arrived may leave; it need not have begun yet."""
        return self.holds(token)

    def next_of(self, most: int) -> Collection[T]:
        """The tokens that leave next, of all that have arrived."""
        return taken(self.arrived, most)

    def given_again(self, tokens: list[T], /) -> None:
        """These have failed a while ago, and are due again."""
        self.failed.difference_update(tokens)

    # Events out.

    def produce(self) -> None:
        if not self._is_open:
            self._is_open = True
            self.open()
        now = self.run.now()
        while self.demand and self.failure is None and self.may_send:
            tokens = self.next_of(min(self._chunk, self.demand))
            if not tokens:
                break
            self.send_all(self.events(tokens, now))
            before, now = now, self.run.now()
            self._chunk = fitting(self._chunk, now - before)
            if self._slice.is_over(now):
                return
        if self.failure is not None:
            self.fail(self.failure)
        elif not self.state:
            self.has_room()

    def events(self, tokens: Collection[T], now: float) -> list[Event[Any]]:
        """The events of what leaves, up to one that ends the stream."""
        if self.failed:
            self.failed.difference_update(tokens)
        events: list[Event[Any]] = []
        for token in tokens:
            if self.failure is not None or not self.is_held(token):
                self.give_back((token,))
            elif (event := self.event(token, now)) is not None:
                events.append(event)
        return events

    def bad(self, token: T, error: BadLine, text: str, created: float) -> None:
        """What has arrived has no value: report it, end the stream, or write it to dead letters."""
        self.run.errors.count_bad_line(error)
        if self.letters is not None:
            self.received += 1
            letter = Event(text, created, self, token)
            self.letters.send(letter, error, str(self.info), 1)
        elif self._on_bad == "stop":
            self.failure = error
            self.give_back((token,))
        else:
            self.refuse(token)

    # Again, later.

    def retry(self, tokens: list[T]) -> None:
        """These have failed: give them again after a while, unless the stream ends before."""
        if self.state or not tokens:
            return
        self.failed.update(tokens)
        due = self.run.now() + self._retry_after
        self._later.append((due, tokens))
        if not self._retrying.is_set:
            self._retrying.set_at(due)

    def _retry(self) -> None:
        # All with one delay, and so in the order in which they are due.
        while self._later and self._later[0][0] <= self.run.now():
            self.given_again(self._later.popleft()[1])
        if self._later:
            self._retrying.set_at(self._later[0][0])

    # The end.

    def release(self) -> None:
        self._retrying.cancel()
        self.leave_to_others(len(self.failed))
        if rest := taken(self.arrived, len(self.arrived)):
            self.give_back(rest)
