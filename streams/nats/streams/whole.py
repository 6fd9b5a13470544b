"""The source stage that reads all of a stream, for a table of which each process has all rows.

It begins at the first message in each run, shares no consumer, and acknowledges nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import aclosing
from math import inf
from typing import TYPE_CHECKING, Any

from penstock.streams.base.errors import CannotConnect, PenstockError, StreamMissing
from penstock.streams.delivery.lease import Lease
from penstock.streams.delivery.leased_source import LeasedSource
from penstock.streams.nats.client.answers import born_of
from penstock.streams.nats.client.connection import connect, is_refused, refusal
from penstock.streams.nats.client.ordered import Delivered, Ordered
from penstock.streams.nats.streams.consumers import refusals_of, stream_of
from penstock.streams.nats.streams.reading import ReadingSettings, ReadMessage, event_of
from penstock.streams.protocol.event import Event
from penstock.streams.protocol.identity import Identity
from penstock.streams.protocol.stage import Subscriber
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run

if TYPE_CHECKING:
    from penstock.streams.nats.client.client import Client

__all__ = ["WholeReading"]


class WholeReading(LeasedSource[ReadMessage]):
    """Calls `come` once all messages that were there at the beginning have ended, or are deleted.

    A message that has failed is emitted again after a while, behind those that came since.
    """

    _client: Client | None = None
    _ordered: Ordered | None = None
    # The stream, and when it was created.
    _stream = _born = ""
    # The last message of the stream at the beginning, and how many up to it have not ended;
    # whether all of them have arrived.
    _end = 0
    _inside = 0
    _is_reached = False

    def __init__(
        self,
        downstream: Subscriber[Any],
        run: Run,
        info: StageInfo,
        settings: ReadingSettings,
        come: Callable[[], object],
    ) -> None:
        super().__init__(downstream, run, info, settings.on_bad_message, settings.retry_after)
        self.ack = self._acknowledge
        self.nack = self._take_back
        self._settings = settings
        self._come: Callable[[], object] | None = come
        self._held = Lease(run.now, inf)

    # Connecting.

    def open(self) -> None:
        self.run.on_close(self._disconnect)
        self.run.spawn(self._read(), "read_jetstream", stage=self)

    async def _read(self) -> None:
        try:
            client = self._client = await connect(self._settings.servers, counts=False)
            await self._read_all(client)
        except PenstockError as error:
            self.fail(error)

    async def _read_all(self, client: Client) -> None:
        what = self._settings.what
        info, subject = await stream_of(client, what)
        self._stream, self._born = str(info.config.name), born_of(info)
        self._end = int(info.state.last_seq)
        subjects = [] if subject is None else [subject]
        ordered = self._ordered = Ordered(client, self._stream, subjects, 1, self._room)
        while not self.state:
            try:
                with refusals_of(what):
                    async with aclosing(ordered.messages()) as messages:
                        async for some in messages:
                            if some:
                                self._arrive(some)
                            else:
                                await self._check(client)
                            self._look(ordered, some)
            except CannotConnect:
                if is_refused(client):
                    raise await refusal(client) from None
                # Servers that were there once are waited for.
                if ordered.pending is None:
                    raise

    async def _check(self, client: Client) -> None:
        """The sequences of another stream of that name are other messages."""
        info, _ = await stream_of(client, self._settings.what)
        if born_of(info) != self._born:
            raise StreamMissing(
                f"the stream '{self._stream}' has been deleted and made again. Start again, to "
                "read this one."
            )

    @property
    def is_connected(self) -> bool:
        return self._client is not None and self._client.is_connected

    def identity(self, token: ReadMessage, /) -> Identity:
        return Identity(self._stream, self._born.replace(" ", "T"), token.sequence)

    def holds(self, token: ReadMessage, /) -> bool:
        return True

    # Messages.

    def _room(self) -> int:
        return 0 if self.state else self.demand - len(self.arrived)

    def has_room(self) -> None:
        if self._ordered is not None:
            self._ordered.look()
        self._end_if_caught_up()

    def _arrive(self, some: list[Delivered]) -> None:
        tracing = self.run.tracing is not None
        tokens = [ReadMessage(*one, self._held, tracing=tracing) for one in some]
        self._inside += sum(one.sequence <= self._end for one in tokens)
        self.arrived += tokens
        self.wake_soon()

    def _look(self, ordered: Ordered, some: list[Delivered]) -> None:
        if not ordered.pending or (some and some[-1][1].sequence >= self._end):
            self._is_reached = True
        self._look_whether_whole()
        self._end_if_caught_up()

    def _look_whether_whole(self) -> None:
        if self._is_reached and not self._inside and self._come is not None:
            come, self._come = self._come, None
            self.run.call(self.info, come)

    def _end_if_caught_up(self) -> None:
        is_out = self._is_reached and not self.arrived and not self.failed
        if is_out and not self._settings.follow:
            self.complete()

    def event(self, token: ReadMessage, now: float, /) -> Event[Any] | None:
        return event_of(self, token, now, raw=self._settings.raw)

    def give_back(self, tokens: Iterable[ReadMessage], /) -> None:
        """Each run reads all of them again."""

    def refuse(self, token: ReadMessage, /) -> None:
        self._ended((token,))

    # Outcomes.

    def _ended(self, tokens: Iterable[ReadMessage]) -> None:
        if self._come is not None:
            self._inside -= sum(one.sequence <= self._end for one in tokens)
            self._look_whether_whole()

    def _acknowledge(self, events: list[Event[Any]]) -> None:
        self._ended([event.token for event in events])

    def _take_back(self, events: list[Event[Any]], error: BaseException | None) -> None:
        tokens: list[ReadMessage] = [event.token for event in events]
        if error is not None:
            self.retry(tokens)
        elif not self.state:
            self.given_again(tokens)

    def given_again(self, tokens: list[ReadMessage], /) -> None:
        super().given_again(tokens)
        self.arrived.extendleft(reversed(tokens))
        self.wake_soon()

    # The end.

    def release(self) -> None:
        super().release()
        if self._ordered is not None:
            self._ordered.stop()

    async def _disconnect(self) -> None:
        if self._client is not None:
            await self._client.close()

    def statistics(self) -> dict[str, Any]:
        """The statistics of every source, the messages `read_ahead` (waiting during a pause), and
        those `pending` in the stream after the last one that has arrived."""
        return {
            **super().statistics(),
            "read_ahead": len(self.arrived),
            "pending": None if self._ordered is None else self._ordered.pending,
        }
