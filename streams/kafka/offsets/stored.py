"""Commits by a store, which keeps what is done of each partition together with states.

The mark of a partition has the floor and everything that is finished above it: however many ranges
there are, none is left out, since a record that comes again would change the states again. There
are no more of them than unfinished records, of which the pipeline bounds the number. What the group
has committed follows the marks, for tools that show the lag of a group, and is not believed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from sys import maxsize
from typing import TYPE_CHECKING, Any, NamedTuple

from orjson import JSONDecodeError, dumps, loads

from penstock.streams.base.errors import CannotOpen, PenstockError
from penstock.streams.delivery.marks import Marks, Participant
from penstock.streams.delivery.ranges import Range, finished_in, text_of_all
from penstock.streams.delivery.text import Unusable, body_in, text_of
from penstock.streams.kafka.offsets.commits import OffsetCommits
from penstock.streams.kafka.offsets.partition import Partition, Token
from penstock.streams.protocol.event import Event, Origin
from penstock.streams.runtime.context import Run

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

__all__ = ["Done", "Records", "StoredOffsets", "done_in", "mark_name"]

_ABOUT = ("kafka",)

# Parts of the session for which a reader waits for the partitions that another member has. A killed
# one has them for a session.
_PATIENCE = 4 / 3


class Done(NamedTuple):
    """What is done of a partition: all below the offset `floor`, and the ranges `finished` above
    it. `generation` is the id of its topic, empty if that was unknown; `follows` the topic whose
    partitions it goes with, empty if the group has given it."""

    floor: int
    finished: Sequence[Range]
    generation: str
    follows: str = ""


def done_in(mark: bytes) -> Done | Unusable:
    """What a mark says, or the reason why it says nothing."""
    body = body_in(mark.decode(errors="surrogateescape"), _ABOUT)
    if isinstance(body, Unusable):
        return body
    try:
        # Any: whatever the mark holds.
        said: Any = loads(body)
        floor, finished = said["floor"], finished_in(said["floor"], said["finished"])
        return Done(floor, finished, said["generation"], said.get("follows", ""))
    except (JSONDecodeError, LookupError, TypeError, AttributeError):
        return Unusable("damaged", "it is not the mark of a partition")


class StoredOffsets(OffsetCommits):
    """Commits of a reader by the store `marks`, and afterwards to its group.

    A partition that goes away and comes back in one run is the same one: its records that were read
    end here, whoever has it, and are not read again. Nobody else can have committed any of them in
    this store, which one run uses at a time.
    """

    is_shared = False
    """Whether other members of the group use the store too."""

    def __init__(
        self,
        run: Run,
        error: Callable[[KafkaError, str], PenstockError],
        marks: Marks,
        origin: Origin,
        group: str,
        session: float,
    ) -> None:
        super().__init__(run, error)
        self.is_alone = False
        """Whether this reader has had all partitions of its topics: it begins only then."""
        self._run = run
        self._name = marks.name
        self._group = group
        self._session = session
        self.missing: list[str] = []
        """The partitions that others have, as far as was noticed."""
        # Since when it waits for them, and whether it was said that others have come, or that what
        # the group has committed is of no use.
        self._waits_since: float | None = None
        self._has_warned = self._has_begun_anew = False
        # All that were read in this run, and those whose marks have changed.
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._due: dict[Partition, None] = {}
        self._marks = marks.marks_in(run)
        self._changed = self._marks.keep(origin, self._records())

    def _records(self) -> Records:
        return Records(self._partitions, self._due)

    # Where to begin.

    def again(self, key: tuple[str, int]) -> Partition | None:
        """The partition, if it was read before in this run."""
        return self._partitions.get(key)

    async def done(self, cluster: str, key: tuple[str, int], generation: str) -> Done | None:
        """What is done of a partition; None if the store has no mark of it. Raises CannotOpen."""
        name = mark_name(cluster, key)
        mark = await self._marks.mark_of(name)
        if mark is None:
            return None
        done = done_in(mark)
        if isinstance(done, Unusable):
            raise CannotOpen(
                f"read_kafka: cannot go on from {self._name}: the mark of {name} cannot be used: "
                f"{done}. Put a whole copy of the store there; or, to begin anew, give a new one."
            )
        if generation and done.generation and generation != done.generation:
            self._run.errors.warn(
                f"read_kafka: {key[0]}, partition {key[1]}, was created again since {self._name} "
                "has noted what is done of it: all its records are read. The states include those "
                "of before"
            )
            return Done(0, (), generation, done.follows)
        return done

    def begin_anew(self, key: tuple[str, int], committed: int) -> None:
        """Nothing is done of a partition, of which the group has committed this offset."""
        if committed > 0 and not self._has_begun_anew:
            self._has_begun_anew = True
            self._run.errors.warn(
                f"read_kafka: the group {self._group!r} has finished records of {key[0]} of which "
                f"{self._name} has no mark: it begins with the first record that there is, so that "
                "its states include all"
            )

    def hold(self, partition: Partition) -> None:
        """Keep the marks of a partition from now on, in place of an earlier one of its name."""
        self._partitions[partition.key] = partition
        if partition.begins:
            self._due[partition] = None
            self._changed()

    # What is done.

    def finish(self, tokens: Iterable[Token], /) -> None:
        is_changed = False
        for token in tokens:
            partition, offset = token.partition, token.offset
            partition.ledger.finish(offset)
            if offset in partition.stored:
                partition.stored.remove(offset)
            else:
                self._due[partition] = None
                is_changed = True
        if is_changed:
            self._changed()

    # Other members of the group.

    def look_for_others(
        self, counts: Mapping[str, int], held: Mapping[tuple[str, int], Partition], now: float
    ) -> None:
        """Begin if this reader holds all partitions, of which the topics have so many. Raises
        CannotOpen if it does not get them."""
        missing = self.missing = [
            f"{topic}/{number}"
            for topic, count in counts.items()
            for number in range(count)
            if (topic, number) not in held
        ]
        some = ", ".join(missing[:3]) + (f" and {len(missing) - 3:,} more" if missing[3:] else "")
        if not missing:
            self.is_alone, self._waits_since, self._has_warned = True, None, False
        elif self.is_alone:
            if not self._has_warned:
                self._has_warned = True
                self._run.errors.warn(
                    f"read_kafka: another member of the group {self._group!r} has got {some}. "
                    f"What is written there is not read here until that one is gone, and is in no "
                    f"state in {self._name} until then"
                )
        elif self._waits_since is None:
            self._waits_since = now
        elif now > self._waits_since + self._session * _PATIENCE:
            raise CannotOpen(
                f"read_kafka(offsets=Store({self._name!r})): another member of the group "
                f"{self._group!r} has {some}, and would have the events that belong to the states "
                "here. States are in one process: stop the other member, or give this reader a "
                "group of its own."
            )


class Records(Participant):
    """The records of `partitions`, whose marks are `due` when they have changed."""

    def __init__(
        self, partitions: Mapping[tuple[str, int], Partition], due: dict[Partition, None]
    ) -> None:
        self._partitions = partitions
        self._due = due
        self._writing: dict[Partition, None] = {}

    def finish(self, events: Sequence[Event[Any]]) -> None:
        """They are done in the store, and end after its commit."""
        for event in events:
            token: Token = event.token
            token.partition.stored.add(token.offset)
            self._due[token.partition] = None

    def marks(self, events: Sequence[Event[Any]]) -> Iterator[tuple[str, bytes]]:
        done: dict[Partition, set[int]] = {}
        for event in events:
            done.setdefault(event.token.partition, set()).add(event.token.offset)
        self._writing |= {**self._due, **dict.fromkeys(done)}
        self._due.clear()
        for partition in self._writing:
            if self._partitions.get(partition.key) is partition:
                mark = _mark(partition, done.get(partition, set()))
                if mark is not None:
                    yield mark_name(partition.cluster, partition.key), mark

    def written(self) -> None:
        self._writing = {}


def mark_name(cluster: str, key: tuple[str, int]) -> str:
    """The name of the mark of a partition."""
    return f"kafka {cluster}/{key[0]}/{key[1]}"


def _mark(partition: Partition, done: Set[int] = frozenset()) -> bytes | None:
    """What is done of a partition as it is kept, with these offsets; None while nothing is known of
    it."""
    ledger, floor = partition.ledger, partition.floor
    stored = partition.stored | done if done else partition.stored
    if stored:
        ledger = ledger.after(stored)
        floor = ledger.floor
    if floor is None:
        return None
    body = {
        "floor": floor,
        "finished": text_of_all(floor, ledger.finished(), maxsize),
        "generation": partition.generation,
    }
    if partition.follows:
        body["follows"] = partition.follows
    return text_of(_ABOUT, dumps(body).decode()).encode()
