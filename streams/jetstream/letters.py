"""Events that were given up on, in a stream of their own: kept, listed, and sent again."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from orjson import OPT_NON_STR_KEYS, dumps, loads

from streams.errors import describe
from streams.event import Event
from streams.faults import DeadLetter, LettersOnly
from streams.run import Run
from streams.sink import Closed, Sink, SinkStage
from streams.stage import StageInfo

if TYPE_CHECKING:
    from nats.js import JetStreamContext

    from streams.jetstream.layout import Layout

__all__ = ["JetStreamLetters", "Letter", "letters_of", "persistently", "send_again"]

_WINDOW = 64
_LONGEST_PAUSE = 1.0


@dataclass(frozen=True, slots=True)
class Letter:
    """One event that was given up on; `sequence` is its number among the dead letters, `key` its
    key as it stands in subjects, `origin` the message it came of."""

    sequence: int
    value: Any
    error: str
    message: str
    stage: str
    attempts: int
    key: str
    origin: str

    def as_dict(self) -> dict[str, Any]:
        """Its fields by name, the value last."""
        fields = asdict(self)
        fields["value"] = fields.pop("value")
        return fields


class JetStreamLetters(Sink[DeadLetter], LettersOnly):
    """Publishes each letter, and accepts it when the server has stored it.

    The id of a letter is that of the message it came of, so that an event which fails again after
    a take-over is kept once.
    """

    def __init__(self, js: JetStreamContext, layout: Layout) -> None:
        self.info = StageInfo("dead_letters", layout.letters, _WINDOW)
        self._js = js
        self._layout = layout

    def open(self, run: Run, closed: Closed) -> SinkStage[DeadLetter]:
        return _Publishing(run, closed, self._js, self._layout)


class _Publishing(SinkStage[DeadLetter]):
    asks_first = _WINDOW

    def __init__(self, run: Run, closed: Closed, js: JetStreamContext, layout: Layout) -> None:
        super().__init__(closed)
        self._run = run
        self._js = js
        self._layout = layout
        self._waiting: deque[Event[DeadLetter]] = deque()
        self._task: asyncio.Task[None] | None = None
        self._ending = False

    def on_next(self, event: Event[Any], /) -> None:
        self._waiting.append(event)
        if self._task is None:
            self._task = self._run.spawn(self._publish(), "dead letters")

    async def _publish(self) -> None:
        while self._waiting:
            event = self._waiting[0]
            letter: DeadLetter = event.value
            mark = getattr(letter.token, "sequence", letter.token)
            headers = {"Nats-Msg-Id": f"{self._layout.stream}:{mark}"}
            body = _encoded(letter)
            await persistently(
                lambda body=body, headers=headers: self._js.publish(  # type: ignore[misc]
                    self._layout.letters_subject, body, headers=headers
                )
            )
            self._waiting.popleft()
            event.finish()
            if not self._ending:
                self.upstream.request(1)
        self._task = None
        if self._ending:
            self.close()

    def on_completed(self) -> None:
        self._ending = True
        if self._task is None:
            self.close()

    def cancel(self) -> None:
        while self._waiting:
            self._waiting.popleft().give_back()
        self.close()


def _encoded(letter: DeadLetter) -> bytes:
    fields = {
        "value": letter.value,
        "error": type(letter.error).__name__,
        "message": str(letter.error),
        "stage": letter.stage,
        "attempts": letter.attempts,
        "key": getattr(letter.token, "key", ""),
        "origin": str(letter.token),
    }
    return dumps(fields, default=describe, option=OPT_NON_STR_KEYS)


async def persistently(attempt: Callable[[], Awaitable[Any]], patience: float = 15.0) -> Any:
    """Await `attempt()`, again and again while the servers elect a leader.

    With pauses that grow to a second. Raises its last error after `patience` seconds.
    """
    from nats.errors import Error

    loop = asyncio.get_running_loop()
    until = loop.time() + patience
    pause = 0.05
    while True:
        try:
            return await attempt()
        except (Error, TimeoutError):
            if loop.time() >= until:
                raise
        await asyncio.sleep(pause * (0.5 + random.random()))
        pause = min(2 * pause, _LONGEST_PAUSE)


async def letters_of(js: JetStreamContext, layout: Layout) -> AsyncIterator[Letter]:
    """The dead letters, oldest first."""
    from nats.js.errors import NotFoundError

    state = (await js.stream_info(layout.letters)).state
    for sequence in range(state.first_seq, state.last_seq + 1):
        with suppress(NotFoundError):
            message = await js.get_msg(layout.letters, sequence)
            yield Letter(sequence, **loads(message.data or b"{}"))


async def send_again(js: JetStreamContext, layout: Layout, letter: Letter) -> None:
    """Publish a letter's event anew, with its key, and delete the letter.

    The new id differs from the event's own, which the window for duplicates may still hold; it is
    the same for every try, so that a try that was cut off sends nothing twice.
    """
    headers = {"Nats-Msg-Id": f"{layout.letters}:{letter.sequence}"}
    body = dumps(letter.value)
    subject = f"{layout.inlet}.{letter.key}"
    await persistently(lambda: js.publish(subject, body, headers=headers))
    await js.delete_msg(layout.letters, letter.sequence)
