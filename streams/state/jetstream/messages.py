"""States, marks and stages as messages of a stream, which has the last one of each subject.

| subject | content |
| --- | --- |
| `STREAM.stage.S` | a stage: a JSON list of its name, its key and its version |
| `STREAM.state.P.S.K` | the state of a key of a stage, of the partition P |
| `STREAM.mark.P.M` | a mark that is stored with the partition |
| `STREAM.head.P` | which run writes the partition, and how often it has written |

S, K and M are tokens of the name of a stage, the JSON of a key and the name of a mark. A message
without content after its first line deletes what was there. Servers drop it after `FORGOTTEN`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from orjson import dumps, loads

from penstock.streams.nats.client.tokens import token_of
from penstock.streams.state.backend import Columns, KeptStage, Row

__all__ = [
    "FORGOTTEN",
    "Head",
    "New",
    "Subjects",
    "head_in",
    "kind_of",
    "mark_in",
    "row_in",
    "stage_in",
]

FORGOTTEN = 7 * 86_400
"""Seconds after which servers forget that something was deleted: a copy that is older is not
continued."""

# The number of runs that a head knows.
_RUNS = 16

_DELETED = {"Nats-TTL": f"{FORGOTTEN}s"}
_PLAIN: Mapping[str, str] = {}


class New(NamedTuple):
    """A message to publish; `about` says what it is, for an error."""

    subject: str
    body: bytes
    fields: Mapping[str, str]
    about: tuple[str, bytes] | None = None


class Head(NamedTuple):
    """What `STREAM.head.P` says: the format, the id of the run that writes the partition, and the
    number of its commits. `before` has the ids of the runs before it, the last one first, each with
    the sequence of its last commit. `partitions` is how many there are, 0 if the states do
    not move."""

    format: int
    run: str
    commits: int
    before: list[list[Any]]
    partitions: int = 0

    @property
    def body(self) -> bytes:
        return dumps(self._asdict())

    def followed(self, run: str, sequence: int) -> Head:
        """The head of the next run, after this one was the message with this sequence."""
        before = [[self.run, sequence], *self.before]
        return Head(self.format, run, 0, before[:_RUNS], self.partitions)

    def has(self, run: str, sequence: int) -> bool:
        """Whether the message with this sequence is certain to be one of that run's commits."""
        return run == self.run or any(
            run == other and sequence <= last for other, last in self.before
        )


def head_in(body: bytes) -> Head:
    """The head in a message's body."""
    fields: dict[str, Any] = loads(body)
    return Head(**fields)


class Subjects:
    """The subjects of one stream and one of its partitions, and the messages for them; with `*`
    those of all its partitions, to be read."""

    def __init__(self, stream: str, partition: str) -> None:
        self.head = f"{stream}.head.{partition}"
        self.stages = f"{stream}.stage.*"
        rows = f"{stream}.state.{partition}.*.*"
        self.of_partition = [rows, f"{stream}.mark.{partition}.*", self.head]
        self._stage = f"{stream}.stage."
        self._state = f"{stream}.state.{partition}."
        self._mark = f"{stream}.mark.{partition}."
        # By stage: what the subjects of its states begin with.
        self._beginnings: dict[str, str] = {}

    def stage(self, stage: KeptStage) -> New:
        return New(self._stage + _named(stage.name), dumps(tuple(stage)), _PLAIN)

    def forget(self, name: str) -> New:
        return New(self._stage + _named(name), b"", _DELETED)

    def row(self, stage: str, columns: Columns) -> New:
        """The message of a state: the key, the timers, the version with the time when it is due,
        and the state, in a line each. JSON has no line breaks."""
        key, state, version, timers, due = columns
        if due is None:
            body = b"%b\n%b\n%d\n%b" % (key, timers, version, state)
        else:
            body = b"%b\n%b\n%d %b\n%b" % (key, timers, version, repr(due).encode(), state)
        return New(self._of(stage) + token_of(key), body, _PLAIN, (stage, key))

    def gone(self, stage: str, key: bytes) -> New:
        return New(self._of(stage) + token_of(key), key + b"\n", _DELETED, (stage, key))

    def mark(self, partition: str, mark: bytes) -> New:
        return New(self._mark + _named(partition), b"%b\n%b" % (dumps(partition), mark), _PLAIN)

    def stage_of(self, subject: str) -> str:
        """The token of the stage in the subject of one of its states, or in its own."""
        words = subject.split(".")
        return words[3] if words[1] == "state" else words[2]

    def _of(self, stage: str) -> str:
        found = self._beginnings.get(stage)
        if found is None:
            found = self._beginnings[stage] = f"{self._state}{_named(stage)}."
        return found


def kind_of(subject: str) -> str:
    """What a message with this subject is: "stage", "state", "mark" or "head"."""
    return subject.split(".")[1]


def _named(name: str) -> str:
    # As JSON: no token may be empty.
    return token_of(dumps(name))


def row_in(body: bytes) -> Row | bytes:
    """The row in a message's body, or the key whose row was deleted."""
    key, _, rest = body.partition(b"\n")
    if not rest:
        return key
    timers, numbers, state = rest.split(b"\n", 2)
    version, _, due = numbers.partition(b" ")
    return Row(key, state, int(version), timers, float(due) if due else None)


def mark_in(body: bytes) -> tuple[str, bytes]:
    """The partition and its mark."""
    partition, _, mark = body.partition(b"\n")
    return loads(partition), mark


def stage_in(body: bytes) -> KeptStage | None:
    """A stage; None if it was deleted."""
    return KeptStage(*loads(body)) if body else None
