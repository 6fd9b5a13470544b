"""A partition that this reader holds: its events in the pipeline, and the next commit."""

from __future__ import annotations

from collections.abc import Sequence, Set
from math import inf
from typing import TYPE_CHECKING

from penstock.streams.delivery.ledger import Ledger
from penstock.streams.delivery.ranges import Range, text_of_all, text_of_most
from penstock.streams.delivery.text import text_of, text_size
from penstock.streams.delivery.trial import Doubt
from penstock.streams.kafka.offsets.metadata import METADATA, about
from penstock.streams.kafka.record import Place, headers_of, texts_of

if TYPE_CHECKING:
    from confluent_kafka import Message, TopicPartition

__all__ = ["Mark", "Partition", "Token"]

Mark = tuple[int, str]
"""A committed offset and the text beside it."""


class Partition:
    """One assignment of a partition. When it comes back later, that is another one.

    `held` is False as soon as another reader may get it, so that no more of its events begin.
    `cluster` is the id of the brokers' cluster.
    """

    def __init__(
        self,
        cluster: str,
        topic: str,
        number: int,
        floor: int | None,
        known: Sequence[Range] = (),
        accepted: int = 0,
    ) -> None:
        self.cluster = cluster
        self.topic = topic
        self.number = number
        self.generation = ""
        """The id of the topic, which tells it from an earlier one of its name; empty if unknown."""
        self.ledger = Ledger[None](known=known)
        """Its records, from the first that was read here."""
        self.stored = set[int]()
        """Offsets of records that a store has as finished, or has them in its next commit, and that
        have not ended yet."""
        self.inside = 0
        """Its events in the pipeline."""
        self.held = True
        self.is_ours = True
        """Whether it was not given up or lost, so that its offsets may be committed here."""
        self.at_end = False
        """Whether the last answer of the brokers was that there is nothing more."""
        self.end: int | None = None
        """The offset that the next record will have, as far as the client knows."""
        self.committed: Mark | None = None
        self.begins = False
        """Whether the group has committed nothing of it, or something else, and reads it from this
        floor on."""
        self.follows = ""
        """The topic whose partitions it goes with, if those of its own topic are not given by the
        group."""
        self.note: Doubt | None = None
        """The note for the next holder in the metadata, if any."""
        self.doubted_until = inf
        """No record from this offset on may have ended the last holder."""
        self.is_noted = True
        """Whether that is committed."""
        self.counts = ""
        """The holder's counts, as text, beside this partition; "" for none."""
        self.left_out = 0
        """Offsets above the floor that are finished, and had no room in the last mark."""
        self.reach = inf
        """No record from this offset on may begin."""
        self._first = floor
        self._most = METADATA
        # Bytes of metadata that were committed with the floor.
        self._accepted = accepted

    @property
    def key(self) -> tuple[str, int]:
        """Its topic and number."""
        return self.topic, self.number

    @property
    def name(self) -> str:
        """What it is in identities and marks."""
        return f"{self.topic}/{self.number}"

    def due(self) -> Mark | None:
        """The mark to commit; None if it has not changed."""
        is_known = self.ledger.floor is not None
        mark = self.mark() if is_known or self.is_new or self.counts else None
        return None if mark == self.committed else mark

    @property
    def is_new(self) -> bool:
        """Whether it is still to be committed where the group begins. If not, a reader that comes
        later would begin somewhere else."""
        return self.begins and self.committed is None

    @property
    def position(self) -> int | None:
        """The offset from which on records are to be read; None for the first that there is."""
        return self._first if self.ledger.next is None else self.ledger.next

    def mark(self) -> Mark | None:
        """The offset up to which all is finished, to be committed again; None if unknown."""
        floor = self.floor
        if floor is None:
            return None
        notes = self._notes(floor)
        room = self._room(floor) - len(notes)
        text, self.left_out = text_of_most(floor, self.ledger.finished(), room)
        return floor, self._text(floor, text + notes)

    def mark_after(self, done: Set[int]) -> Mark | None:
        """The mark to commit when these records are finished as well; None if it does not fit, or
        is unknown."""
        ledger = self.ledger.after(done)
        floor = self._first if ledger.floor is None else ledger.floor
        if floor is None:
            return None
        # A note is left out before anything that is finished.
        for notes in (self._notes(floor), ""):
            room = self._room(floor) - len(notes)
            text = text_of_all(floor, ledger.finished(), room)
            if text is not None:
                return floor, self._text(floor, text + notes)
        return None

    @property
    def floor(self) -> int | None:
        """The offset up to which all is finished; None if unknown."""
        return self._first if self.ledger.floor is None else self.ledger.floor

    @property
    def has_note(self) -> bool:
        """Whether the metadata has more than what is finished."""
        return self.note is not None or bool(self.counts)

    def _notes(self, floor: int) -> str:
        """The note and the counts, as text, if there is room for them."""
        notes = f"{'' if self.note is None else self.note}{self.counts}"
        return notes if len(notes) <= self._room(floor) else ""

    def _room(self, floor: int) -> int:
        """How many characters the body of the text beside this floor may have."""
        return self._most - text_size(about(self.cluster, *self.key, floor))

    def _text(self, floor: int, body: str) -> str:
        return text_of(about(self.cluster, *self.key, floor), body) if body else ""

    def remember_less(self, least: int = 0) -> None:
        """The brokers accept less metadata than by default, but at least so many bytes."""
        self._most = max(least, self._most // 2)

    @property
    def accepted(self) -> int:
        """How many bytes of metadata the brokers have accepted."""
        return self._accepted if self.committed is None else len(self.committed[1])

    def place(self, offset: int | None = None, metadata: str = "") -> TopicPartition:
        """This partition, or an offset in it, as the client names it."""
        from confluent_kafka import TopicPartition

        if offset is None:
            return TopicPartition(self.topic, self.number)
        return TopicPartition(self.topic, self.number, offset, metadata)

    @property
    def lag(self) -> int:
        """Offsets that are not finished, as far as is known; 0 before the first answer."""
        floor = self.floor
        return 0 if self.end is None or floor is None else max(0, self.end - floor)


class Token:
    """A record as the token of its event; kept, because it may have to be emitted again."""

    __slots__ = ("message", "offset", "partition")

    def __init__(self, partition: Partition, message: Message, offset: int) -> None:
        self.partition = partition
        self.message = message
        self.offset = offset

    @property
    def place(self) -> tuple[str, int, int]:
        """By which records that are emitted again are in order."""
        return self.partition.topic, self.partition.number, self.offset

    @property
    def headers(self) -> dict[str, str]:
        """The headers that are text; one may be the context of a trace."""
        return texts_of(headers_of(self.message))

    def __str__(self) -> str:
        return str(Place(*self.place))
