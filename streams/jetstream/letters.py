"""Events that were given up on, in a stream of their own: kept, listed, and sent again."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from hashlib import blake2b
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
    from nats.js.api import StreamConfig

    from streams.jetstream.layout import Layout
    from streams.jetstream.outbox import Outbox

__all__ = ["JetStreamLetters", "Letter", "id_of", "letters_of", "send_again", "stream_of_letters"]

_WINDOW = 64
# Seconds in which an event that is given up on again is kept once.
_HOUR = 3600.0


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
    """Publishes each letter, and accepts it when a server has stored it.

    `id_of` a letter should be the same when the event it came of fails again elsewhere, so that it
    is kept once. `outbox` is the way out; whoever makes this starts it before the first letter, and
    stops it.
    """

    def __init__(
        self,
        outbox: Callable[[], Outbox],
        stream: str,
        subject: str,
        id_of: Callable[[DeadLetter], str],
    ) -> None:
        self.info = StageInfo("dead_letters", stream, _WINDOW)
        self._outbox = outbox
        self._subject = subject
        self._id_of = id_of

    def open(self, run: Run, closed: Closed) -> SinkStage[DeadLetter]:
        return _Publishing(closed, self._outbox, self._subject, self._id_of)


class _Publishing(SinkStage[DeadLetter]):
    asks_first = _WINDOW

    def __init__(
        self,
        closed: Closed,
        outbox: Callable[[], Outbox],
        subject: str,
        id_of: Callable[[DeadLetter], str],
    ) -> None:
        super().__init__(closed)
        self._outbox = outbox
        self._subject = subject
        self._id_of = id_of
        self._open: dict[Event[DeadLetter], None] = {}
        self._ending = False

    def on_next(self, event: Event[Any], /) -> None:
        if self._closed is None:
            event.give_back()
            return
        self._open[event] = None
        letter: DeadLetter = event.value
        try:
            self._outbox().send(
                self._subject, _encoded(letter), self._id_of(letter), partial(self._done, event)
            )
        except Exception as error:
            self._done(event, error, False)

    def _done(self, event: Event[Any], error: Exception | None, known: bool) -> None:
        if self._open.pop(event, self) is self:
            return
        if error is not None:
            event.fail(error)
            self.cancel(error)
            return
        event.finish()
        if not self._ending:
            self.upstream.request(1)
        elif not self._open:
            self.close()

    def on_completed(self) -> None:
        self._ending = True
        if not self._open:
            self.close()

    def cancel(self, error: Exception | None = None) -> None:
        opened, self._open = self._open, {}
        for event in opened:
            event.give_back()
        self.close(error)


def stream_of_letters(name: str, subject: str, replicas: int) -> StreamConfig:
    """The stream that keeps letters, so many times."""
    from nats.js.api import StreamConfig

    return StreamConfig(
        name=name, subjects=[subject], num_replicas=replicas, duplicate_window=_HOUR
    )


def id_of(stream: str, letter: DeadLetter) -> str:
    """The same when the same event of a message fails again in the same stage, after a take-over.
    Several events that came of one message have different ones, unless they are equal."""
    value = dumps(letter.value, default=describe, option=OPT_NON_STR_KEYS)
    digest = blake2b(value + letter.stage.encode(), digest_size=8).hexdigest()
    return f"{stream}:{letter.token}:{digest}"


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


async def letters_of(js: JetStreamContext, stream: str) -> AsyncIterator[Letter]:
    """The dead letters that are in a stream now, oldest first."""
    from nats.js.errors import NotFoundError

    state = (await js.stream_info(stream)).state
    for sequence in range(state.first_seq, state.last_seq + 1):
        with suppress(NotFoundError):
            message = await js.get_msg(stream, sequence)
            yield Letter(sequence, **loads(message.data or b"{}"))


async def send_again(outbox: Outbox, js: JetStreamContext, layout: Layout, letter: Letter) -> None:
    """Publish a letter's event anew, with its key, and delete the letter.

    The new id differs from the event's own, which the window for duplicates may still hold; it is
    the same for every try, so that a try that was cut off sends nothing twice.
    """
    id = f"{layout.letters}:{letter.sequence}"
    await outbox.stored(f"{layout.inlet}.{letter.key}", dumps(letter.value), id)
    await js.delete_msg(layout.letters, letter.sequence)
