"""The dead-letter stream: stores, lists and replays events."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.streams.errors import BadLine, PayloadTooLarge
from penstock.streams.failures.policy import DeadLetter, LettersOnly
from penstock.streams.io.letter import Letter, id_of, stub, whole
from penstock.streams.protocol.event import Event, give_back_all
from penstock.streams.protocol.sink_stage import Closed, Sink, SinkStage
from penstock.streams.protocol.stage import CLOSED, StageInfo
from penstock.streams.runtime.context import Run

if TYPE_CHECKING:
    from nats.js import JetStreamContext
    from nats.js.api import StreamConfig

    from penstock.streams.nats.client.outbox import Done, Outbox
    from penstock.streams.nats.cluster.layout import Layout

__all__ = [
    "WINDOW",
    "JetStreamLetters",
    "Letter",
    "id_of",
    "letters_of",
    "send_again",
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

    def open(self, run: Run, closed: Closed) -> SinkStage[DeadLetter]:
        return _Publishing(closed, self._outbox, self._subject, self._id_of)


class _Publishing(SinkStage[DeadLetter]):
    asks_first = WINDOW

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

    def on_events(self, events: list[Event[Any]], /) -> None:
        for place, event in enumerate(events):
            if self.state >= CLOSED:
                give_back_all(events[place:])
                return
            self._take_in(event)

    def _take_in(self, event: Event[Any]) -> None:
        self._open[event] = None
        letter: DeadLetter = event.value
        try:
            self._send(letter, partial(self._done, event))
        except Exception as error:
            self._done(event, error, False)

    def _send(self, letter: DeadLetter, done: Done) -> None:
        id, send = self._id_of(letter), self._outbox().send
        try:
            send(self._subject, whole(letter), id, done)
        except PayloadTooLarge:
            send(self._subject, stub(letter), id, done)

    def _done(self, event: Event[Any], error: Exception | None, known: bool) -> None:
        if self._open.pop(event, self) is self:
            return
        if error is not None:
            event.fail(error)
            self.break_off(error)
            return
        event.finish()
        if self.state:
            self.end_if_idle()
        else:
            self.upstream.request(1)

    @property
    def is_idle(self) -> bool:
        return not self._open

    def give_back(self) -> None:
        opened, self._open = self._open, {}
        give_back_all(opened)


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


async def send_again(outbox: Outbox, js: JetStreamContext, layout: Layout, letter: Letter) -> None:
    """Publish a letter's event anew, with its key, and delete the letter. Raises EventOmitted, and
    what `Outbox.stored` raises.

    The new id differs from the event's own, which the window for duplicates may still hold; it is
    the same for every attempt, so an interrupted attempt sends nothing twice.
    """
    event = letter.event()
    id = f"{layout.letters}:{letter.sequence}"
    await outbox.stored(f"{layout.inlet}.{letter.key or layout.key_of(event)}", event, id)
    await js.delete_msg(layout.letters, letter.sequence)
