"""Publishes messages to streams, and repeats each until a server has stored it."""

from __future__ import annotations

import asyncio
import logging
import re
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, cast

from orjson import JSONDecodeError, loads

from penstock.streams.base.errors import (
    CannotConnect,
    PayloadTooLarge,
    PublishFailed,
    RightsMissing,
    StreamMissing,
)
from penstock.streams.nats.client.connection import jetstream
from penstock.streams.nats.client.message import header_with
from penstock.streams.nats.client.refusals import refusal_of, rights_missing
from penstock.streams.runtime.tasks import new_task

if TYPE_CHECKING:
    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription

    from penstock.streams.nats.client.client import Client

__all__ = ["Outbox"]

# Seconds after which an answer is no longer waited for.
_ANSWER = 2.0
_FIRST_PAUSE, _LONGEST_PAUSE, _LOOK = 0.05, 1.0, 0.05
# Seconds until servers are asked whether there is a stream at all, and between two questions.
_MISSING, _ASK = 2.0, 1.0
# The client does not check, and a line break would end the protocol line.
_SUBJECT = re.compile(r"[^\s.*>]+(\.[^\s.*>]+)*")
# Bytes. The server closes the connection for a line of more than 4,096; the reply subject and two
# sizes are in it too.
_LONGEST_SUBJECT = 3900
_ID = "Nats-Msg-Id"
_NONE: Mapping[str, str] = {}
_NO_RESPONDERS = "503"
_NOBODY = "no stream takes its subject, or its servers are electing a leader"

log = logging.getLogger("penstock")

Done = Callable[[Exception | None, bool], None]
"""Called once for each message: with the error, or None if it is stored, and whether it was there
before."""


class _Letter:
    """`doubtful` is when the first attempt with an unknown outcome began; `due` is when to act
    again, never while it waits to be published."""

    __slots__ = (
        *("began", "body", "done", "doubtful", "due", "header", "pause", "refusal", "subject"),
        *("tried", "under_way"),
    )

    def __init__(
        self, subject: str, body: bytes, header: dict[str, str], done: Done, now: float
    ) -> None:
        self.subject = subject
        self.body = body
        self.header = header
        self.done = done
        self.began = self.tried = now
        self.due = inf
        self.pause = _FIRST_PAUSE
        self.under_way = False
        self.doubtful: float | None = None
        self.refusal = ""

    def doubt(self, refusal: str) -> None:
        """The message may be stored, from its last attempt on."""
        self.refusal = refusal
        if self.doubtful is None:
            self.doubtful = self.tried


class Outbox:
    """Publishes in order; any number may be under way.

    A message that is not acknowledged, or that is refused for a transient reason, such as a full
    stream or servers without a quorum, is published again under the same id, with pauses that grow
    to a second. Later messages do not wait for it. A message that no stream has taken fails after
    `patience` seconds, and the first one already when servers say that no stream takes it. One that
    may be stored, because an answer was lost, fails `doubt` seconds after the first such attempt:
    less than the stream remembers ids, or it could be stored twice.
    """

    def __init__(self, client: Client, *, patience: float = 60.0, doubt: float = 60.0) -> None:
        self._client = client
        self._patience = patience
        self._doubt = doubt
        self._open: dict[str, _Letter] = {}
        self._waiting: deque[str] = deque()
        self._count = 0
        # Answers that do not come from a stream.
        self.foreign = 0
        self._has_stored = False
        # When servers may be asked again for the stream of a message.
        self._ask_at = 0.0
        self._subscription: Subscription | None = None
        self._wanted = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        # Slow to import, and needed only where there is a server.
        import random

        self._jitter = partial(random.uniform, 0.5, 1.5)

    async def __aenter__(self) -> Outbox:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Publish from now on. Raises RightsMissing."""
        client = self._client
        inbox: str = client.new_inbox()
        self._prefix = f"{inbox}."
        self._subscription = await client.listen(f"{inbox}.*", self._answered)
        client.watch(self._refused)
        self._tasks = [
            new_task(work(), "penstock publishing") for work in (self._publish, self._look)
        ]

    @property
    def under_way(self) -> int:
        """Messages that are not stored yet."""
        return len(self._open)

    def send(
        self, subject: str, body: bytes, id: str, done: Done, fields: Mapping[str, str] = _NONE
    ) -> None:
        """Publish a message; PayloadTooLarge for one that, with its header, servers would refuse,
        and ValueError for a subject or an id that it would misread. Its header has these `fields`
        beside the id."""
        if len(subject.encode()) > _LONGEST_SUBJECT:
            raise ValueError(
                f"a subject of {len(subject):,} letters is longer than a server takes: "
                f"{subject[:80]}..."
            )
        # Servers ignore blanks around an id, and a message whose id is empty has none.
        if (
            not _SUBJECT.fullmatch(subject)
            or "\n" in id
            or "\r" in id
            or not id
            or id != id.strip()
        ):
            raise ValueError(
                f"nothing can be published to the subject {subject!r} with the identity {id!r}: a "
                "subject is words with dots between, without blanks, * or >, an identity one line "
                "without blanks at its ends"
            )
        largest = self._client.max_payload
        # With its header: a server that is sent more closes the connection.
        header = {_ID: id, **fields}
        size = len(header_with(header)) + len(body)
        if size > largest:
            raise PayloadTooLarge(
                f"a message of {size:,} bytes for '{subject}' is more than the server takes "
                f"({largest:,}, max_payload in its configuration)"
            )
        self._count += 1
        number = str(self._count)
        now = asyncio.get_running_loop().time()
        self._open[number] = _Letter(subject, body, header, done, now)
        self._waiting.append(number)
        self._wanted.set()

    async def stored(
        self, subject: str, body: bytes, id: str, fields: Mapping[str, str] = _NONE
    ) -> bool:
        """Publish a message and wait until it is stored; whether it was there before.

        Raises PayloadTooLarge, PublishFailed, StreamMissing and RightsMissing.
        """
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def done(error: Exception | None, known: bool) -> None:
            if answer.done():
                return
            if error is None:
                answer.set_result(known)
            else:
                answer.set_exception(error)

        self.send(subject, body, id, done, fields)
        return await answer

    async def stop(self) -> None:
        """Stop publishing; messages under way may or may not be stored."""
        from contextlib import suppress

        from nats.errors import Error

        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._open.clear()
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            self._client.unwatch(self._refused)
            with suppress(Error):
                await subscription.unsubscribe()

    async def _publish(self) -> None:
        from nats.errors import Error

        loop = asyncio.get_running_loop()
        client, prefix = self._client, self._prefix
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            while self._waiting:
                number = self._waiting.popleft()
                letter = self._open.get(number)
                if letter is None:
                    continue
                # The client would keep it, and send it at an unknown time.
                if not client.is_connected:
                    self._put_off(letter, f"no connection: {client.last_error}")
                    continue
                letter.tried = now = loop.time()
                letter.due = now + _ANSWER
                letter.under_way = True
                try:
                    await client.publish(
                        letter.subject,
                        letter.body,
                        reply=prefix + number,
                        headers=letter.header,
                    )
                except Error as error:
                    self._put_off(letter, f"{type(error).__name__}: {error}")

    async def _answered(self, message: Msg) -> None:
        number = message.subject.rpartition(".")[2]
        letter = self._open.get(number)
        if letter is None:
            return
        if (message.headers or {}).get("Status") == _NO_RESPONDERS:
            self._put_off(letter, _NOBODY)
            return
        answer = _answer_in(message.data)
        if answer is None:
            self._foreign(letter)
            return
        error: dict[str, Any] | None = answer.get("error")
        if error is None:
            del self._open[number]
            self._has_stored = True
            # It may be known by an earlier attempt of its own, whose answer was lost.
            letter.done(None, bool(answer.get("duplicate")) and letter.doubtful is None)
            return
        text = str(error.get("description"))
        refusal = refusal_of(error)
        if refusal == "final":
            del self._open[number]
            letter.done(
                PublishFailed(f"the stream refuses a message for '{letter.subject}': {text}"),
                False,
            )
            return
        if refusal == "perhaps stored":
            letter.doubt(text)
        self._put_off(letter, text)

    def _foreign(self, letter: _Letter) -> None:
        """Another program answers messages to this subject; a stream may still do so."""
        self.foreign += 1
        if self.foreign == 1:
            log.warning(
                f"an answer to a message for '{letter.subject}' is not that of a stream, and does "
                "not count: something else answers to this subject as well"
            )

    def _refused(self, text: str) -> None:
        """The server refuses something to this user."""
        if "publish to" not in text:
            return
        for number, letter in list(self._open.items()):
            if f'"{letter.subject.lower()}"' in text:
                del self._open[number]
                what = f"a message for {letter.subject!r}"
                letter.done(rights_missing(what, text, "publish there"), False)

    def _put_off(self, letter: _Letter, refusal: str) -> None:
        """The last attempt has ended without storing it."""
        letter.refusal = refusal
        letter.under_way = False
        letter.due = asyncio.get_running_loop().time() + letter.pause * self._jitter()
        letter.pause = min(2 * letter.pause, _LONGEST_PAUSE)

    async def _look(self) -> None:
        """Publish again what is due."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_LOOK)
            now = loop.time()
            for number in [one for one, letter in self._open.items() if letter.due <= now]:
                letter = self._open[number]
                if letter.under_way:
                    letter.doubt("no answer")
                if self._is_hopeless(letter, now):
                    del self._open[number]
                    letter.done(self._given_up(letter), False)
                    continue
                if self._may_be_missing(letter, now):
                    missing = await self._missing(letter.subject)
                    if self._open.get(number) is not letter:
                        continue
                    if missing is not None:
                        del self._open[number]
                        letter.done(missing, False)
                        continue
                    self._ask_at = loop.time() + _ASK
                letter.under_way = False
                letter.due = inf
                self._waiting.append(number)
            self._wanted.set()

    def _is_hopeless(self, letter: _Letter, now: float) -> bool:
        if letter.doubtful is None:
            return now - letter.began >= self._patience
        return now - letter.doubtful >= self._doubt

    def _may_be_missing(self, letter: _Letter, now: float) -> bool:
        """Whether to ask for the stream of a message."""
        is_first = letter.refusal == _NOBODY and not self._has_stored
        return is_first and now >= max(letter.began + _MISSING, self._ask_at)

    async def _missing(self, subject: str) -> Exception | None:
        """The error of all messages for a subject, if the servers say that no stream takes it."""
        from nats.errors import Error
        from nats.js.errors import NotFoundError, ServiceUnavailableError

        try:
            await jetstream(self._client, _ANSWER).find_stream_name_by_subject(subject)
        except NotFoundError:
            return _no_stream(subject)
        except ServiceUnavailableError as error:
            # Without a code nobody has answered.
            if error.code is None:
                return CannotConnect("no NATS server here has JetStream: start it with -js")
        except (Error, TimeoutError, RightsMissing):
            # The stream may be there.
            pass
        return None

    def _given_up(self, letter: _Letter) -> Exception:
        what = f"no server took a message for '{letter.subject}' within"
        if letter.doubtful is not None:
            return PublishFailed(
                f"{what} {self._doubt:g} s of an attempt without a clear answer "
                f"({letter.refusal}); it may or may not be stored. A longer window for duplicates "
                "leaves more time"
            )
        if letter.refusal == _NOBODY and not self._has_stored:
            return _no_stream(letter.subject)
        return PublishFailed(
            f"{what} {self._patience:g} s ({letter.refusal}); it is not stored. Check that the "
            "stream has a leader and room, and publish again"
        )


def _no_stream(subject: str) -> StreamMissing:
    return StreamMissing(
        f"no stream takes '{subject}': make one with that subject, or check its name"
    )


def _answer_in(data: bytes) -> dict[str, Any] | None:
    """A stream's answer to a message; None if the answer is not from a stream."""
    try:
        answer: Any = loads(data)
    except JSONDecodeError:
        return None
    match answer:
        case {"error": {"code": int()}} | {"stream": str(), "seq": int()}:
            return cast(dict[str, Any], answer)
        case _:
            return None
