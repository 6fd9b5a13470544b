"""The sink stage that publishes messages to streams of others, each until it is stored."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

from orjson import OPT_NON_STR_KEYS

from penstock.streams.errors import PenstockError, RightsMissing, StreamMissing
from penstock.streams.failures.policy import ErrorPolicy, OnError
from penstock.streams.io.encoding import encoded
from penstock.streams.keyed.key import By, key_function
from penstock.streams.nats.client.connection import connect
from penstock.streams.nats.client.outbox import Outbox
from penstock.streams.protocol.event import Event, give_back_all
from penstock.streams.protocol.sink_stage import Closed, SinkStage
from penstock.streams.runtime.context import Run

if TYPE_CHECKING:
    from penstock.streams.nats.client.client import Client

__all__ = ["Writing", "WritingSettings"]

# Events requested at a time.
_STRIDE = 16


class WritingSettings(NamedTuple):
    """The arguments of `penstock.write_jetstream`, which documents each."""

    subject: str | Callable[[Any], str]
    servers: tuple[str, ...]
    id: By[Any] | None
    window: int
    patience: float
    on_error: OnError


class Writing(SinkStage[Any]):
    """One run of `penstock.write_jetstream`.

    `_open` events are under way; those in `_waiting` came before there was a
    connection.
    """

    def __init__(self, run: Run, closed: Closed, settings: WritingSettings) -> None:
        super().__init__(closed)
        self.asks_first = settings.window
        self._run = run
        self._settings = settings
        self._id = None if settings.id is None else key_function(settings.id)
        self._faults = ErrorPolicy(settings.on_error, run, self)
        self._client: Client | None = None
        self._outbox: Outbox | None = None
        self._waiting: deque[Event[Any]] = deque()
        self._open: dict[Event[Any], None] = {}
        self._stored = self._known = 0
        self._spare = 0
        self._ending: tuple[BaseException | None] | None = None
        run.on_close(self._disconnect)
        run.spawn(self._connect(), "write_jetstream")

    async def _connect(self) -> None:
        settings = self._settings
        try:
            self._client = await connect(settings.servers, counts=False)
            outbox = Outbox(self._client, patience=settings.patience, doubt=settings.patience)
            await outbox.start()
        except PenstockError as error:
            self._give_back()
            self.break_off(error)
            return
        self._outbox = outbox
        while self._waiting:
            self._publish(self._waiting.popleft())
        self._close_if_over()

    async def _disconnect(self) -> None:
        if self._outbox is not None:
            await self._outbox.stop()
        if self._client is not None:
            await self._client.close()

    def on_events(self, events: list[Event[Any]], /) -> None:
        for place, event in enumerate(events):
            if self._closed is None:
                give_back_all(events[place:])
                return
            if self._outbox is None:
                self._waiting.append(event)
            else:
                self._publish(event)

    def _publish(self, event: Event[Any]) -> None:
        assert self._outbox is not None
        settings = self._settings
        value: Any = event.value
        try:
            subject = settings.subject
            to = subject if isinstance(subject, str) else subject(value)
            body = value if isinstance(value, bytes) else encoded(value, OPT_NON_STR_KEYS)
            id = uuid4().hex if self._id is None else str(self._id(value))
            self._open[event] = None
            tracing = self._run.tracing
            headers = {} if tracing is None else tracing.headers_of(event)
            self._outbox.send(to, body, id, partial(self._done, event), headers)
        except Exception as error:
            self._failed(event, error)

    def _done(self, event: Event[Any], error: Exception | None, known: bool) -> None:
        if error is not None:
            self._failed(event, error)
            return
        self._stored += not known
        self._known += known
        del self._open[event]
        event.finish()
        self._ask()

    def _failed(self, event: Event[Any], error: Exception) -> None:
        self._open.pop(event, None)
        if isinstance(error, StreamMissing | RightsMissing):
            # No other event would fare better.
            event.fail(error)
        elif self._faults.survives(event, error):
            self._ask()
            return
        self._give_back()
        self.break_off(error)

    def _ask(self) -> None:
        if self._closed is None:
            return
        if self._ending is not None:
            self._close_if_over()
            return
        self._spare += 1
        if self._spare >= min(_STRIDE, self._settings.window):
            spare, self._spare = self._spare, 0
            self.upstream.request(spare)

    # The end.

    def on_completed(self) -> None:
        self._ending = (None,)
        self._close_if_over()

    def on_error(self, error: BaseException, /) -> None:
        self._ending = (error,)
        self._close_if_over()

    def _close_if_over(self) -> None:
        if self._ending is not None and not self._open and not self._waiting:
            self.close(*self._ending)

    def _give_back(self) -> None:
        give_back_all([*self._open, *self._waiting])
        self._open.clear()
        self._waiting.clear()

    def cancel(self) -> None:
        self._give_back()
        self.close()

    def statistics(self) -> dict[str, Any]:
        """Values `stored`, and those that the stream knew already (`known`); `in_flight` to the
        server."""
        return {
            "stored": self._stored,
            "known": self._known,
            "waiting": len(self._waiting),
            "in_flight": len(self._open),
        }
