"""The ends of a section in a worker: a source of what the parent sends, and a sink of results."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable
from itertools import count, groupby, repeat
from typing import Any

from penstock.streams.base.errors import NotPicklable
from penstock.streams.base.take_front import taken
from penstock.streams.io.encoding import Unencoded
from penstock.streams.protocol.acknowledgement import parents
from penstock.streams.protocol.event import RETURNED, Ending, Event, finish_all, new_events
from penstock.streams.protocol.stage import Subscriber
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.stages.sink_stage import BaseSinkStage
from penstock.streams.stages.source_stage import BaseSourceStage
from penstock.streams.stages.time_slice import LARGEST
from penstock.streams.workers.messages import Ended, Events, Parts

__all__ = ["Inlet", "Outlet", "Sent", "root_of"]


class Sent(Event[Any]):
    """An event of the parent, with its number there."""

    __slots__ = ("number",)

    number: int


_ONLY_SENT: set[type[Event[Any]]] = {Sent}


class Inlet(BaseSourceStage):
    """The source of a section: emits the events that the parent has sent."""

    def __init__(
        self,
        downstream: Subscriber[Any],
        run: Run,
        info: StageInfo,
        settled: Callable[[list[Event[Any]], Ending, Any], None],
        decode: Callable[[list[Any]], list[Any] | None] | None,
    ) -> None:
        super().__init__(downstream, run, info)
        self._settled = settled
        self._decode = decode
        self._inbox: deque[Event[Any]] = deque()
        self._is_last = False

    def came(self, message: Events) -> None:
        """Events have come."""
        values = message.values if self._decode is None else self._decode(message.values)
        if values is None:
            # The source has decoded them by the same function: nothing is wrong with them.
            self.fail(MemoryError("a worker process cannot decode events: its memory has run out"))
            values = message.values
        tokens = repeat(None) if message.tokens is None else message.tokens
        events: list[Any] = new_events(values, 0.0, self, tokens, Sent)
        for event, created, number in zip(
            events, message.created, count(message.first), strict=False
        ):
            event.created = created
            event.number = number
        if message.contexts is not None and self.run.tracing is not None:
            self.run.tracing.join(events, message.contexts)
        if self.state:
            self._settled(events, RETURNED, None)
        else:
            self._inbox.extend(events)
            self.wake()

    def last_came(self) -> None:
        """No more events come."""
        self._is_last = True
        if not self._inbox:
            self.complete()

    def produce(self) -> None:
        while self.demand and self._inbox:
            self.send_all(taken(self._inbox, self.demand))
        if self._is_last and not self._inbox:
            self.complete()

    def withdraw(self) -> None:
        """Return what was not emitted yet."""
        if self._inbox:
            self._settled(taken(self._inbox, len(self._inbox)), RETURNED, None)

    def release(self) -> None:
        self.withdraw()

    @property
    def needs_ends(self) -> bool:
        return True

    def settle(self, events: list[Event[Any]], ending: Ending, why: Any, /) -> None:
        self._settled(events, ending, why)


class Outlet(BaseSinkStage):
    """The sink of a section: sends the results to the parent, as many as that has room for.

    Results wait for others until the loop goes on, because a message costs much, but not longer
    than until they take half of the room: the worker goes on while the parent makes room again.
    `beside`: there are other sinks, so that an event has not ended when its result is sent.
    """

    def __init__(
        self,
        room: int,
        run: Run,
        send: Callable[[Any], None],
        unsendable: Callable[[Event[Any], NotPicklable], None],
        closed: Callable[[BaseException | None], None],
        encode: Callable[[Any], bytes] | None,
        *,
        beside: bool,
    ) -> None:
        super().__init__(closed)
        self.asks_first = room
        self._most = min(LARGEST, max(1, room // 2))
        self._encode = encode
        self._run = run
        self._send = send
        self._unsendable = unsendable
        self._unsent: list[Event[Any]] = []
        self._beside = beside

    def on_events(self, events: list[Event[Any]], /) -> None:
        unsent = self._unsent
        if not unsent:
            self._run.call_soon(None, self.flush)
        unsent += events
        if len(unsent) >= self._most:
            self.flush()

    def flush(self) -> None:
        """Send the results that wait."""
        events, self._unsent = self._unsent, []
        if not events:
            return
        # Faster than to look at each, and there is rarely another kind.
        if self._beside or set(map(type, events)) == _ONLY_SENT:
            self._send_some(events, ends=not self._beside)
            return
        for kind, some in groupby(events, type):
            self._send_some(list(some), ends=kind is Sent)

    def _send_some(self, events: list[Event[Any]], *, ends: bool) -> None:
        """Send the values of events, which have ended with them if they are the parent's own."""
        kind = Ended if ends else Parts
        own: list[Any] = events if ends else [root_of(event) for event in events]
        try:
            self._send(
                kind(
                    [event.number for event in own],
                    self._encoded([event.value for event in events]),
                    array("d", [event.started or event.created for event in events]),
                    array("d", [event.ended for event in events]),
                )
            )
        except NotPicklable as error:
            if len(events) > 1:
                for event in events:
                    self._send_some([event], ends=ends)
            else:
                self._unsendable(events[0], error)
        else:
            if not ends:
                finish_all(events)

    def _encoded(self, values: list[Any]) -> list[Any]:
        """The values as they are sent."""
        encode = self._encode
        if encode is None:
            return values
        try:
            return list(map(encode, values))
        except Exception:
            if len(values) == 1:
                # The sink will find the same error, and do what it does about it.
                return [Unencoded(values[0])]
            return [self._encoded([value])[0] for value in values]


def root_of(event: Event[Any]) -> Sent:
    """The event of the parent that `event` was made of.

    A section joins only the events of a stream that is read for an event, with that event, which
    comes first.
    """
    while not isinstance(event, Sent):
        event = parents(event)[0]
    return event
