"""The floor of each partition, up to which it is done: a key-value bucket written by owners only.

An entry is the text of a ledger: it is about the stream, the partition and when the stream was
created, since an earlier stream of that name, or a copy of it, has other messages. What was
written for another, or was damaged, is not a floor: everything stored is processed again.

An entry also names the owner, until it hands the partition over, so that the next owner knows
whether a worker was lost, and has the note of the trial of its events
(`penstock.streams.delivery.trial`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from orjson import JSONDecodeError, dumps, loads

from penstock.streams.delivery.text import About, Unusable, body_in, text_of
from penstock.streams.delivery.trial import HELD, NOTE, Doubt, doubt_in
from penstock.streams.nats.partition.seen import Renewed, Seen
from penstock.streams.runtime.tasks import new_task

if TYPE_CHECKING:
    from nats.js.kv import KeyValue

__all__ = ["Above", "Floor", "Floors", "Mark"]

log = logging.getLogger("penstock")

# Least seconds between two writes of a floor: events finished in between are repeated if the worker
# is killed, and a write costs about as much as an event.
_GATHERED = 0.1
# What is done above a floor is looked through again after so many times the time that this takes.
_SHARE = 50
# Seconds until the next write after a failed one.
_PAUSE = 1.0
# The fields of a mark that the first version did not write.
_OPTIONAL = ("after", "begun", "ended", "dropped")
# The fields of a note in a former version, which is ignored.
_FORMER = ("left", "tries", "window")


class Mark(NamedTuple):
    """The last message up to which everything is done: its number, 0 for none, and when it was
    stored, in seconds since 1970.

    Of the message `after` it, if that has `begun`, so many of its first events are done. `ended`
    counts the events up to here since the stream was created, and `dropped` those of them that were
    duplicates.
    """

    sequence: int = 0
    stored: float = 0.0
    after: int = 0
    begun: int = 0
    ended: int = 0
    dropped: int = 0


class Above(NamedTuple):
    """The ranges of events that are done above a floor, as a text that counts from `base`. Of the
    last message in it, which is `sequence`, 0 for none, is known when it was `stored`."""

    base: int = 0
    text: str = ""
    sequence: int = 0
    stored: float = 0.0

    @classmethod
    def of(cls, fields: dict[str, Any]) -> Above:
        """Read an entry, which may have none."""
        match fields.get("above"):
            case [int() as base, str() as text, int() as sequence, int() | float() as stored]:
                return cls(base, text, sequence, stored)
            case _:
                return cls()

    def fields(self) -> dict[str, Any]:
        """The field of an entry, none if nothing is done above the floor."""
        return {"above": list(self)} if self.text else {}


class Floors:
    """The bucket, which anybody may read, and the task that writes the floors of one worker.

    `born` distinguishes this `stream` from an earlier one of the same name, whose floors do not
    apply.
    """

    def __init__(self, table: KeyValue, stream: str, born: str) -> None:
        self.born = born
        """When the stream was created whose floors these are."""
        self._stream = stream
        self._table = table
        # The reasons for which floors were not used.
        self._told: set[str] = set()
        self._risen: set[Floor] = set()
        self._wanted = asyncio.Event()
        self._writing: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start writing floors that rise."""
        self._writing = new_task(self._write(), "penstock floors")

    async def stop(self) -> None:
        """Stop writing; floors that must be known have to be settled before."""
        if self._writing is not None:
            self._writing.cancel()
            await asyncio.gather(self._writing, return_exceptions=True)

    async def read(self, partition: int) -> tuple[Mark, int]:
        """The floor, and the entry's revision."""
        fields, revision = await self._entry(partition)
        return _mark(fields), revision

    def _about(self, partition: int) -> About:
        return self._stream, partition, self.born

    async def _entry(self, partition: int) -> tuple[dict[str, Any], int]:
        """The entry, empty without one that is for this partition, and its revision."""
        from nats.js.errors import KeyNotFoundError

        try:
            entry = await self._table.get(f"p.{partition}")
        except KeyNotFoundError:
            return {}, 0
        fields = _fields_in(entry.value or b"", self._about(partition))
        if isinstance(fields, Unusable):
            self._not_used(partition, fields.name, fields.why)
            fields = {}
        return fields, entry.revision or 0

    def _not_used(self, partition: int, reason: str, why: str) -> None:
        """Report that a floor is not used, once for each reason."""
        if reason not in self._told:
            self._told.add(reason)
            log.warning(
                "the floor of partition %d is not used: %s. Everything stored of this partition, "
                "and of others of which the same is true, is processed again",
                *(partition, why),
            )

    async def claim(
        self,
        partition: int,
        owner: str,
        window: int,
        blameless: str = "",
        is_there: Callable[[Mark], Awaitable[bool]] | None = None,
    ) -> Floor:
        """Take the floor over: writes of former owners that are still under way are refused.

        The owner may have `window` unfinished events. One before it that has not handed over was
        lost, unless it is the `blameless` one.
        A floor whose message `is_there` no more, because another one has its number, is not used,
        nor is what was done above it if that is so of one of the last of these messages.
        """
        from nats.js.errors import KeyWrongLastSequenceError

        while True:
            fields, revision = await self._entry(partition)
            if is_there is not None and not await is_there(_mark(fields)):
                self._not_used(partition, "ahead", "it is ahead of what the stream has")
                fields = {}
            known, doubt, renewed = _mark(fields), _doubt(fields, partition), _renewed(fields)
            above = Above.of(fields)
            if is_there is not None and not await is_there(Mark(above.sequence, above.stored)):
                self._not_used(partition, "above", "what is done above it is ahead of the stream")
                above = Above()
            if fields.get("owner", "") not in ("", blameless):
                doubt = doubt.after()
            elif doubt.lost:
                doubt = doubt._replace(reach=-1, begun=0)
            if not doubt.lost:
                doubt = Doubt(begun=window)
            with suppress(KeyWrongLastSequenceError):
                revision = await self.put(partition, owner, known, doubt, renewed, above, revision)
                return Floor(self, partition, owner, known, doubt, renewed, above, revision)

    async def put(
        self,
        partition: int,
        owner: str,
        floor: Mark,
        doubt: Doubt,
        renewed: Iterable[Renewed],
        above: Above,
        revision: int,
    ) -> int:
        """Write, unless the entry has changed since that revision, which raises
        KeyWrongLastSequenceError; returns the new revision."""
        fields: dict[str, Any] = {"floor": floor.sequence, "stored": floor.stored}
        fields |= {name: value for name in _OPTIONAL if (value := getattr(floor, name))}
        if again := [list(one) for one in renewed]:
            fields["renewed"] = again
        body = dumps({**fields, **above.fields(), "note": str(doubt), "owner": owner}).decode()
        value = text_of(self._about(partition), body).encode()
        return await self._table.update(f"p.{partition}", value, revision)

    async def is_of(self, partition: int, owner: str) -> int:
        """The entry's revision if it is the owner's, or else 0."""
        entry = await self._table.get(f"p.{partition}")
        fields = _fields_in(entry.value or b"", self._about(partition))
        is_own = not isinstance(fields, Unusable) and fields["owner"] == owner
        return (entry.revision or 0) if is_own else 0

    def risen(self, floor: Floor) -> None:
        """Write this one soon."""
        self._risen.add(floor)
        self._wanted.set()

    async def _write(self) -> None:
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            risen, self._risen = self._risen, set()
            answers = await asyncio.gather(
                *(floor.write() for floor in risen), return_exceptions=True
            )
            failed = [one for one, e in zip(risen, answers, strict=True) if e is not None]
            await asyncio.sleep(_PAUSE if failed else _GATHERED)
            for floor in failed:
                self.risen(floor)


def _mark(fields: dict[str, Any]) -> Mark:
    if not fields:
        return Mark()
    numbers = {name: fields.get(name, 0) for name in _OPTIONAL}
    if not all(isinstance(number, int) for number in numbers.values()):
        # Written by another program.
        numbers = {}
    return Mark(fields["floor"], fields["stored"], **numbers)


def _doubt(fields: dict[str, Any], partition: int) -> Doubt:
    if any(field in fields for field in _FORMER):
        log.warning("what is said of lost owners of partition %d has another form", partition)
    note = str(fields.get("note", ""))
    try:
        return doubt_in(note.removeprefix(NOTE)) or HELD
    except ValueError:
        # Written by another program.
        return HELD


def _renewed(fields: dict[str, Any]) -> list[Renewed]:
    try:
        return [
            Renewed(int(sequence), float(stored), [int(place) for place in places])
            for sequence, stored, places in fields.get("renewed", ())
        ]
    except (TypeError, ValueError):
        # Written by another program.
        return []


class Floor:
    """The floor of one partition, while one worker owns it.

    Written with it are its `doubt`, and what the next owner has to know of identities: what was
    read as `renewed`, until this owner has its own `seen`; and what is done above the floor, as
    `look_above` says, which is asked once more each time that it was `changed`.
    """

    def __init__(
        self,
        floors: Floors,
        partition: int,
        owner: str,
        known: Mark,
        doubt: Doubt,
        renewed: list[Renewed],
        above: Above,
        revision: int,
    ) -> None:
        self.above = above
        """The ranges above the floor that the servers know to be done."""
        self.look_above: Callable[[], Above] | None = None
        self.known = known
        """The floor that the servers know."""
        self.doubt = doubt
        self.renewed = renewed
        self.seen: Seen | None = None
        self._known_doubt: Doubt | None = doubt
        self._floors = floors
        self._partition = partition
        self._owner = owner
        self._revision = revision
        self._reached = known
        self._lost = False
        self._one = asyncio.Lock()
        # Whether more is done above it than is written, and when that is looked at next.
        self._has_changed, self._look_at = False, -inf

    @property
    def _is_known(self) -> bool:
        return self.known == self._reached and self._known_doubt == self.doubt

    def rise(self, floor: Mark) -> None:
        """Raise the floor; it is written soon."""
        self._reached = floor
        self._floors.risen(self)

    def changed(self) -> None:
        """More is done above the floor; it is written soon."""
        self._has_changed = True
        self._floors.risen(self)

    async def settle(self) -> None:
        """Wait until the present floor is written, unless another owner has taken over.

        Raises what the servers' silence raises.
        """
        while not (self._is_known or self._lost):
            await self.write()

    async def hand_over(self) -> None:
        """The same, and record that the owner has left the partition voluntarily."""
        self._owner, self._known_doubt, self._look_at = "", None, -inf
        await self.settle()

    async def write(self) -> None:
        """Write the present floor, unless another owner has taken over.

        Raises what the servers' silence raises.
        """
        from nats.js.errors import KeyWrongLastSequenceError

        async with self._one:
            reached, doubt, above = self._reached, self.doubt, self.above
            if self._lost or (self._is_known and not self._has_changed):
                return
            if self._has_changed and self.look_above is not None:
                now = asyncio.get_running_loop().time
                if (began := now()) >= self._look_at:
                    self._has_changed, above = False, self.look_above()
                    self._look_at = began + _SHARE * (now() - began)
                else:
                    self._floors.risen(self)
                    if self._is_known:
                        return
            if self.seen is not None:
                self.renewed = self.seen.renewed(reached.stored)
            try:
                self._revision = await self._floors.put(
                    *(self._partition, self._owner, reached, doubt, self.renewed, above),
                    self._revision,
                )
                self.known, self._known_doubt, self.above = reached, doubt, above
            except BaseException as error:
                self._has_changed |= above is not self.above
                if not isinstance(error, KeyWrongLastSequenceError):
                    raise
                # Written by ourselves, with the answer lost?
                revision = await self._floors.is_of(self._partition, self._owner)
                if not revision:
                    self._lost = True
                elif revision > self._revision:
                    self._revision = revision
                    self._floors.risen(self)
                else:
                    # The servers have not agreed on it yet, or an earlier leader has answered.
                    raise TimeoutError("an earlier write is still under way") from error


def _fields_in(value: bytes, about: About) -> dict[str, Any] | Unusable:
    """The fields of an entry."""
    body = body_in(value.decode("utf-8", "surrogateescape"), about)
    if isinstance(body, Unusable):
        return body
    try:
        fields: Any = loads(body)
    except (JSONDecodeError, UnicodeEncodeError):
        fields = None
    match fields:
        case {"floor": int(), "stored": int() | float(), "owner": str()}:
            return cast(dict[str, Any], fields)
        case _:
            return Unusable("foreign", "penstock has not written it")
