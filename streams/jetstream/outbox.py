"""Messages on their way into streams: each until a server has said that it is stored."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from orjson import loads

from streams.errors import PayloadTooLarge, PublishFailed, StreamMissing

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription

__all__ = ["Outbox"]

# Seconds without an answer after which a message is published again.
_PATIENCE = 2.0
_FIRST_PAUSE, _LONGEST_PAUSE, _LOOK = 0.05, 1.0, 0.05

Done = Callable[[Exception | None, bool], None]
"""Told once of each message: the error, or that it is stored, and whether it was there before."""


class _Letter:
    __slots__ = ("began", "body", "done", "due", "id", "pause", "refusal", "subject")

    def __init__(self, subject: str, body: bytes, id: str, done: Done, now: float) -> None:
        self.subject = subject
        self.body = body
        self.id = id
        self.done = done
        self.began = now
        self.due = now + _PATIENCE
        self.pause = _FIRST_PAUSE
        self.refusal = "no answer"


class Outbox:
    """Publishes in order; any number may be under way.

    One that is not acknowledged, or that no server can take at the moment, is published again
    under the same id, with pauses that grow to a second, for `give_up` seconds: less than streams
    remember ids. Those after it do not wait for it.
    """

    def __init__(self, client: Client, give_up: float = 60.0) -> None:
        self._client = client
        self._give_up = give_up
        self._open: dict[str, _Letter] = {}
        self._waiting: deque[str] = deque()
        self._count = 0
        self._subscription: Subscription | None = None
        self._wanted = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        # Slow to import, and needed only where there is a server.
        import random

        self._jitter = partial(random.uniform, 0.5, 1.5)

    async def start(self) -> None:
        client: Any = self._client
        inbox: str = client.new_inbox()
        self._prefix = f"{inbox}."
        self._subscription = await client.subscribe(f"{inbox}.*", cb=self._answered)
        self._tasks = [
            asyncio.create_task(work(), name="penstock publishing")
            for work in (self._publish, self._look)
        ]

    @property
    def under_way(self) -> int:
        """Messages that are not stored yet."""
        return len(self._open)

    def send(self, subject: str, body: bytes, id: str, done: Done) -> None:
        """Publish a message; PayloadTooLarge for one that the server would refuse to read."""
        largest = self._client.max_payload
        if len(body) > largest:
            raise PayloadTooLarge(
                f"a message of {len(body):,} bytes for '{subject}' is more than the server takes "
                f"({largest:,}, max_payload in its configuration)"
            )
        self._count += 1
        number = str(self._count)
        now = asyncio.get_running_loop().time()
        self._open[number] = _Letter(subject, body, id, done, now)
        self._waiting.append(number)
        self._wanted.set()

    async def stop(self) -> None:
        """Publish no more; what is under way may or may not be stored."""
        from contextlib import suppress

        from nats.errors import Error

        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._open.clear()
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            with suppress(Error):
                await subscription.unsubscribe()

    async def _publish(self) -> None:
        from nats.errors import Error

        publish, prefix = self._client.publish, self._prefix
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            while self._waiting:
                number = self._waiting.popleft()
                letter = self._open.get(number)
                if letter is None:
                    continue
                try:
                    await publish(
                        letter.subject,
                        letter.body,
                        reply=prefix + number,
                        headers={"Nats-Msg-Id": letter.id},
                    )
                except Error as error:
                    letter.refusal = f"{type(error).__name__}: {error}"

    async def _answered(self, message: Msg) -> None:
        number = message.subject.rpartition(".")[2]
        letter = self._open.get(number)
        if letter is None:
            return
        if not message.data:
            self._put_off(letter, "no stream takes its subject, or its servers choose a leader")
            return
        answer: dict[str, Any] = loads(message.data)
        error: dict[str, Any] | None = answer.get("error")
        if error is None:
            del self._open[number]
            letter.done(None, bool(answer.get("duplicate")))
        elif error.get("code") == 503:
            self._put_off(letter, str(error.get("description")))
        else:
            del self._open[number]
            letter.done(
                PublishFailed(
                    f"the stream refuses a message for '{letter.subject}': "
                    f"{error.get('description')}"
                ),
                False,
            )

    def _put_off(self, letter: _Letter, refusal: str) -> None:
        letter.refusal = refusal
        now = asyncio.get_running_loop().time()
        letter.due = min(letter.due, now + letter.pause * self._jitter())

    async def _look(self) -> None:
        """Publish again what is due."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_LOOK)
            now = loop.time()
            for number in [one for one, letter in self._open.items() if letter.due <= now]:
                letter = self._open[number]
                if now - letter.began >= self._give_up:
                    del self._open[number]
                    letter.done(self._given_up(letter), False)
                    continue
                letter.pause = min(2 * letter.pause, _LONGEST_PAUSE)
                letter.due = now + _PATIENCE
                self._waiting.append(number)
            self._wanted.set()

    def _given_up(self, letter: _Letter) -> Exception:
        if letter.refusal.startswith("no stream"):
            return StreamMissing(
                f"no stream takes '{letter.subject}': make one with that subject, or check its name"
            )
        return PublishFailed(
            f"no server took a message for '{letter.subject}' within {self._give_up:g} s "
            f"({letter.refusal}); it may or may not be stored"
        )
