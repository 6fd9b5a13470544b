"""The sink stage that publishes messages to streams of others, each until it is stored."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

from penstock.streams.base.errors import PenstockError, describe
from penstock.streams.base.keys import By, key_function, key_name
from penstock.streams.execution.handler import called_name
from penstock.streams.failures.policy import DeadLetter, OnError
from penstock.streams.io.confirmed_sink import ConfirmedSink
from penstock.streams.io.encoding import encoded
from penstock.streams.io.letter_line import letter_line
from penstock.streams.nats.client.connection import connect
from penstock.streams.nats.client.outbox import Outbox
from penstock.streams.protocol.event import Event
from penstock.streams.runtime.context import Run
from penstock.streams.stages.sink_stage import Closed

if TYPE_CHECKING:
    from penstock.streams.nats.client.client import Client
    from penstock.streams.runtime.observing import TracedCalls

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


class Writing(ConfirmedSink):
    """One run of `penstock.write_jetstream`.

    Events in `_waiting` came before there was a connection.
    """

    def __init__(self, run: Run, closed: Closed, settings: WritingSettings) -> None:
        stride = min(_STRIDE, settings.window)
        super().__init__(run, closed, settings.window, stride, settings.on_error)
        self._run = run
        self._settings = settings
        self._letter_line = letter_line(run.now)
        self._id = None if settings.id is None else key_function(settings.id)
        self._calls = called_name(settings.subject, settings.id)
        self._traced: TracedCalls | None = None
        self._client: Client | None = None
        self._outbox: Outbox | None = None
        self._waiting: deque[Event[Any]] = deque()
        self._stored = self._known = 0
        run.on_close(self._disconnect)
        run.spawn(self._connect(), "write_jetstream", stage=self)

    async def _connect(self) -> None:
        settings = self._settings
        try:
            self._client = await connect(settings.servers, counts=False)
            outbox = Outbox(self._client, patience=settings.patience, doubt=settings.patience)
            await outbox.start()
        except PenstockError as error:
            self.break_off(error)
            return
        self._outbox = outbox
        while self._waiting:
            self.try_to_send(self._waiting.popleft())

    async def _disconnect(self) -> None:
        if self._outbox is not None:
            await self._outbox.stop()
        if self._client is not None:
            await self._client.close()

    def send(self, event: Event[Any], /) -> None:
        if self._outbox is None:
            self._waiting.append(event)
            return
        value: Any = event.value
        tracing = self._run.tracing
        if tracing is None or not self._calls:
            to, id = self._place(value)
        else:
            if self._traced is None:
                self._traced = tracing.calls(self.info, self._calls, None)
            to, id = self._traced.call(self._place, event)
        if type(value) is DeadLetter:
            value = self._letter_line(value)
        body = value if isinstance(value, bytes) else encoded(value)
        headers = {} if tracing is None else tracing.headers_of(event)
        self._outbox.send(to, body, id, partial(self._done, event), headers)

    def _place(self, value: Any) -> tuple[str, str]:
        """The subject and the id for a value."""
        subject = self._settings.subject
        to = subject if isinstance(subject, str) else subject(value)
        return to, uuid4().hex if self._id is None else self._id_of(self._id(value))

    def _id_of(self, id: Any) -> str:
        """The text of an id; ValueError for what would be one id of many values."""
        if id is None or id == "" or id != id:
            raise ValueError(
                f"id={key_name(self._settings.id or '')} is {describe(id)}, by which the stream "
                "would take every such value for a duplicate of the first: give an id to each, or "
                "write those without one by another write_jetstream"
            )
        return str(id)

    def _done(self, event: Event[Any], error: Exception | None, known: bool) -> None:
        if error is not None:
            self.failed(event, error)
            return
        self._stored += not known
        self._known += known
        self.stored(event, known=known)

    def give_back(self) -> None:
        self._waiting.clear()
        super().give_back()

    def statistics(self) -> dict[str, Any]:
        """Values `stored`, and those that the stream knew already (`known`); `in_flight` to the
        server."""
        return {
            "stored": self._stored,
            "known": self._known,
            "waiting": len(self._waiting),
            "in_flight": len(self.under_way) - len(self._waiting),
        }
