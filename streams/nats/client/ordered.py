"""Reads a stream from a message on in its order, for one reader, without acknowledgements."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any

from penstock.streams.base.errors import CannotConnect, RightsMissing
from penstock.streams.nats.client.answers import api, info_of
from penstock.streams.nats.client.message import Message
from penstock.streams.nats.client.place import Place, place_of
from penstock.streams.nats.client.requests import Requests

if TYPE_CHECKING:
    from penstock.streams.nats.client.client import Client

__all__ = ["Delivered", "Ordered"]

Delivered = tuple[Message, Place]

# Seconds after which servers delete a consumer that nothing reads.
_FORGOTTEN = 30
# Seconds until a reader to which nothing comes asks whether something will, and at most.
_QUIET, _LONGEST = 0.5, 5.0
# Seconds until a consumer that has delivered nothing is replaced.
_PAUSE = 0.25


class Ordered:
    """The messages of some subjects of a stream, all if none are given, from the sequence `first`.

    A consumer of its own, in the memory of one server, delivers as many as `room` returns. One that
    a server has lost, or from which something has not arrived, is replaced by another, which begins
    behind the last message. Memory: the room.
    """

    pending: int | None = None
    """The messages that were there and have not come, as of the last one, or when the server was
    asked; None before that."""

    def __init__(
        self,
        client: Client,
        stream: str,
        subjects: Sequence[str],
        first: int,
        room: Callable[[], int],
    ) -> None:
        self._client = client
        self._stream = stream
        self._subjects = list(subjects)
        self._next = first
        self._room = room
        self._requests: Requests | None = None
        self._is_stopped = False
        # What has arrived and is not read, how many the consumer has delivered, and why it is given
        # up.
        self._arrived: list[Delivered] = []
        self._delivered = 0
        self._failure: Exception | None = None
        self._something = asyncio.Event()

    def look(self) -> None:
        """There may be more room."""
        if self._requests is not None:
            self._requests.look()

    def stop(self) -> None:
        """End the messages."""
        self._is_stopped = True
        self._something.set()

    async def messages(self) -> AsyncGenerator[list[Delivered]]:
        """What comes, until `stop`; an empty list when `pending` may have changed without that.

        Raises errors of the API, RightsMissing, and CannotConnect: if servers have answered no
        request for half a minute, and when they do not accept the credentials any more. Another
        call goes on behind the last message.
        """
        while not self._is_stopped:
            if self.pending is not None:
                await self._keep_within()
            made = await api(self._client, f"CONSUMER.CREATE.{self._stream}", self._consumer())
            self.pending = made["num_pending"]
            yield []
            async with aclosing(self._of_consumer(made["name"])) as lists:
                async for some in lists:
                    yield some
            if not (self._delivered or self._is_stopped):
                # What it failed by may last.
                await asyncio.sleep(_PAUSE)

    async def _keep_within(self) -> None:
        """A stream that has lost its last messages gives the next ones their numbers."""
        info = await api(self._client, f"STREAM.INFO.{self._stream}", {})
        self._next = min(self._next, info["state"]["last_seq"] + 1)

    def _consumer(self) -> dict[str, Any]:
        return {
            "stream_name": self._stream,
            "config": {
                "filter_subjects": self._subjects,
                "deliver_policy": "by_start_sequence",
                "opt_start_seq": max(1, self._next),
                "ack_policy": "none",
                "num_replicas": 1,
                "mem_storage": True,
                "inactive_threshold": _FORGOTTEN * 1_000_000_000,
            },
        }

    async def _of_consumer(self, name: str) -> AsyncGenerator[list[Delivered]]:
        """What a new consumer delivers, up to something that is missing."""
        from nats.errors import Error

        self._delivered, self._failure = 0, None
        requests = self._requests = Requests(
            *(self._client, self._stream, name, self._free, self._has_arrived, self._failed),
            easily=True,
            beat=self._beat,
        )
        await requests.start()
        quiet = _QUIET
        try:
            while self._failure is None and not self._is_stopped:
                try:
                    async with asyncio.timeout(quiet if self.pending else None):
                        await self._something.wait()
                except TimeoutError:
                    quiet = min(2 * quiet, _LONGEST)
                    if requests.on_request and await self._has_lost_rest(name):
                        yield []
                    continue
                self._something.clear()
                some, self._arrived = self._arrived, []
                if some:
                    quiet, place = _QUIET, some[-1][1]
                    self._next, self.pending = place.sequence + 1, place.pending
                    yield some
                    requests.look()
            self._raise_if_final()
        finally:
            self._requests = None
            self._arrived.clear()
            # First: a cancellation may interrupt the other.
            with suppress(Error):
                await self._client.publish(f"$JS.API.CONSUMER.DELETE.{self._stream}.{name}")
            await requests.stop()

    def _raise_if_final(self) -> None:
        if isinstance(self._failure, (RightsMissing, CannotConnect)):
            raise self._failure

    def _free(self) -> int:
        return self._room() - len(self._arrived)

    def _has_arrived(self, message: Message) -> None:
        place = place_of(message.reply)
        if self._failure is not None:
            return
        if place.delivery != self._delivered + 1:
            self._failed(LookupError(self._delivered))
            return
        self._delivered = place.delivery
        self._arrived.append((message, place))
        self._something.set()

    def _beat(self, delivered: int) -> None:
        """The consumer has delivered so many: more than those, which came before, are lost."""
        if delivered > self._delivered:
            self._failed(LookupError(delivered))

    def _failed(self, error: Exception) -> None:
        self._failure = self._failure or error
        self._something.set()

    async def _has_lost_rest(self, name: str) -> bool:
        """Whether what was pending is not there any more: deleted, or beyond a limit."""
        from nats.errors import Error
        from nats.js.errors import APIError

        try:
            info = await info_of(self._client, self._stream, name)
        except (APIError, Error, TimeoutError):
            # What is wrong with the consumer, the requests notice.
            return False
        if info["num_pending"] or info["delivered"]["consumer_seq"] > self._delivered:
            return False
        self.pending = 0
        return True
