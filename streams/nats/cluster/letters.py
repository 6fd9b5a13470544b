"""The dead-letter stream: stores, lists and replays events."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.streams.base.errors import BadLine, PayloadTooLarge
from penstock.streams.failures.policy import DeadLetter, LettersOnly
from penstock.streams.io.confirmed_sink import ConfirmedSink
from penstock.streams.io.letter import Letter, id_of, stub, whole
from penstock.streams.protocol.event import Event
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.stages.sink_stage import BaseSinkStage, Closed, Sink

if TYPE_CHECKING:
    from nats.js import JetStreamContext
    from nats.js.api import StreamConfig

    from penstock.streams.nats.client.outbox import Outbox

__all__ = [
    "WINDOW",
    "JetStreamLetters",
    "Letter",
    "id_of",
    "letters_of",
    "stream_of_letters",
]

WINDOW = 64
"""Letters under way at once."""
# Seconds in which an event that is dead-lettered again is stored once.
_HOUR = 3600.0


class JetStreamLetters(Sink[DeadLetter], LettersOnly):
    """Publishes each letter, and accepts it when a server has stored it.

    `id_of` a letter should be the same when its event fails again elsewhere, so that it is stored
    once. The creator starts `outbox` before the first letter, and stops it.
    """

    def __init__(
        self,
        outbox: Callable[[], Outbox],
        stream: str,
        subject: str,
        id_of: Callable[[DeadLetter], str],
    ) -> None:
        self.info = StageInfo("dead_letters", stream, WINDOW)
        self._outbox = outbox
        self._subject = subject
        self._id_of = id_of

    def open(self, run: Run, closed: Closed) -> BaseSinkStage:
        return _Publishing(run, closed, self._outbox, self._subject, self._id_of)


class _Publishing(ConfirmedSink):
    def __init__(
        self,
        run: Run,
        closed: Closed,
        outbox: Callable[[], Outbox],
        subject: str,
        id_of: Callable[[DeadLetter], str],
    ) -> None:
        super().__init__(run, closed, WINDOW, 1, None)
        self._outbox = outbox
        self._subject = subject
        self._id_of = id_of

    def send(self, event: Event[Any], /) -> None:
        letter: DeadLetter = event.value
        id, send, done = self._id_of(letter), self._outbox().send, partial(self._done, event)
        try:
            send(self._subject, whole(letter), id, done)
        except PayloadTooLarge:
            send(self._subject, stub(letter), id, done)

    def _done(self, event: Event[Any], error: Exception | None, known: bool) -> None:
        if error is None:
            self.stored(event)
        else:
            self.failed(event, error)


def stream_of_letters(name: str, subject: str, replicas: int) -> StreamConfig:
    """The configuration of a stream for letters."""
    from nats.js.api import StreamConfig

    return StreamConfig(
        name=name, subjects=[subject], num_replicas=replicas, duplicate_window=_HOUR
    )


async def letters_of(
    js: JetStreamContext, stream: str, foreign: Callable[[str], None] = lambda text: None
) -> AsyncIterator[Letter]:
    """The dead letters that are in a stream now, oldest first; `foreign` is called with a text
    about each message that is not a letter."""
    from nats.js.errors import NotFoundError

    state = (await js.stream_info(stream)).state
    # A stream that never had a message reports 0 as its first sequence.
    for sequence in range(max(1, state.first_seq), state.last_seq + 1):
        try:
            message = await js.get_msg(stream, sequence)
        except NotFoundError:
            continue
        try:
            letter = Letter.of(sequence, message.data or b"")
        except BadLine as error:
            foreign(f"message {sequence} of '{stream}' is not a dead letter: {error}")
        else:
            yield letter
