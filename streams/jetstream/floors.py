"""Up to where the partitions are done: a table on the servers, in which only owners write.

An entry also has the owner, until it hands the partition over, so that the next one knows whether
a worker was lost, and what is in doubt since (`streams.jetstream.doubt`).
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from orjson import JSONDecodeError, dumps, loads

from streams.errors import describe
from streams.jetstream.doubt import Doubt

if TYPE_CHECKING:
    from nats.js.kv import KeyValue

__all__ = ["Floor", "Floors", "Mark"]

log = logging.getLogger("penstock")

# Seconds between two writings of a floor at least: what is done within them is repeated when its
# worker is killed, and a writing costs about as much as an event.
_GATHERED = 0.1
# Seconds until the next writing after one that has failed.
_PAUSE = 1.0


class Mark(NamedTuple):
    """The last message up to which all is done: its number, 0 for none, and when it was stored, in
    seconds since 1970."""

    sequence: int = 0
    stored: float = 0.0


class Floors:
    """The table, read by anybody; and the task that writes the floors of one worker.

    `born` tells this stream from an earlier one with the same name, whose floors say nothing.
    """

    def __init__(self, table: KeyValue, born: str) -> None:
        self._table = table
        self._born = born
        self._risen: set[Floor] = set()
        self._wanted = asyncio.Event()
        self._writing: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Write what rises from now on."""
        self._writing = asyncio.get_running_loop().create_task(
            self._write(), name="penstock floors"
        )

    async def stop(self) -> None:
        """Write no more; a floor that is to be known is to be settled before."""
        if self._writing is not None:
            self._writing.cancel()
            await asyncio.gather(self._writing, return_exceptions=True)

    async def read(self, partition: int) -> tuple[Mark, int]:
        """The floor, and the entry's revision."""
        said, revision = await self._entry(partition)
        return _mark(said), revision

    async def _entry(self, partition: int) -> tuple[dict[str, Any], int]:
        """What is said of this stream, which may be nothing, and the entry's revision."""
        from nats.js.errors import KeyNotFoundError

        try:
            entry = await self._table.get(f"p.{partition}")
        except KeyNotFoundError:
            return {}, 0
        value = entry.value or b""
        said = _said(value)
        match said:
            case {"floor": int(), "stored": int() | float(), "of": str(born)}:
                return (said if born == self._born else {}), entry.revision or 0
            case _:
                log.warning(
                    "the floor of partition %d cannot be read, somebody else wrote it: %s. All "
                    "that is kept of the partition is worked on again",
                    *(partition, describe(value)),
                )
                return {}, entry.revision or 0

    async def claim(
        self, partition: int, owner: str, suspects: int, attempts: int, blameless: str = ""
    ) -> Floor:
        """Have the floor for oneself: what owners before have still under way is refused.

        An owner that has not handed over was lost, unless it is the `blameless` one: any of so many
        events, its `suspects`, may have cost it.
        """
        from nats.js.errors import KeyWrongLastSequenceError

        while True:
            said, revision = await self._entry(partition)
            known, doubt = _mark(said), Doubt.of(said)
            if said.get("owner", "") not in ("", blameless):
                doubt = doubt.after_a_loss(suspects, attempts, known.sequence)
            with suppress(KeyWrongLastSequenceError):
                revision = await self.put(partition, owner, known, doubt, revision)
                return Floor(self, partition, owner, known, doubt, revision)

    async def put(
        self, partition: int, owner: str, floor: Mark, doubt: Doubt, revision: int
    ) -> int:
        """Write, if nobody has since that revision: KeyWrongLastSequenceError; the new revision."""
        said = {"floor": floor.sequence, "stored": floor.stored, **doubt.said()}
        value = dumps({**said, "owner": owner, "of": self._born})
        return await self._table.update(f"p.{partition}", value, revision)

    async def is_of(self, partition: int, owner: str) -> int:
        """The entry's revision if it is the owner's, or else 0."""
        entry = await self._table.get(f"p.{partition}")
        said = _said(entry.value or b"")
        return (entry.revision or 0) if said.get("owner") == owner else 0

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


def _mark(said: dict[str, Any]) -> Mark:
    return Mark(said["floor"], said["stored"]) if said else Mark()


class Floor:
    """That of one partition, while it is one worker's; `doubt` is written with it."""

    def __init__(
        self,
        floors: Floors,
        partition: int,
        owner: str,
        known: Mark,
        doubt: Doubt,
        revision: int,
    ) -> None:
        self.known = known
        """What the servers have."""
        self.doubt = doubt
        self._known_doubt: Doubt | None = doubt
        self._floors = floors
        self._partition = partition
        self._owner = owner
        self._revision = revision
        self._reached = known
        self._lost = False
        self._one = asyncio.Lock()

    @property
    def _is_known(self) -> bool:
        return self.known == self._reached and self._known_doubt == self.doubt

    def rise(self, floor: Mark) -> None:
        """Everything up to there is done; it is written soon."""
        self._reached = floor
        self._floors.risen(self)

    async def settle(self) -> None:
        """Have all that is reached written, unless another owner has come.

        Raises what the servers' silence raises.
        """
        while not (self._is_known or self._lost):
            await self.write()

    async def hand_over(self) -> None:
        """The same, and that the owner has left the partition of its own accord."""
        self._owner, self._known_doubt = "", None
        await self.settle()

    async def write(self) -> None:
        """Write what is reached by now, unless another owner has come, whom it is left to.

        Raises what the servers' silence raises.
        """
        from nats.js.errors import KeyWrongLastSequenceError

        async with self._one:
            reached, doubt = self._reached, self.doubt
            if self._lost or self._is_known:
                return
            try:
                self._revision = await self._floors.put(
                    self._partition, self._owner, reached, doubt, self._revision
                )
                self.known, self._known_doubt = reached, doubt
            except KeyWrongLastSequenceError:
                # Ourselves, where the answer got lost?
                revision = await self._floors.is_of(self._partition, self._owner)
                self._lost = revision <= self._revision
                self._revision = max(revision, self._revision)
                self._floors.risen(self)


def _said(value: bytes) -> dict[str, Any]:
    """What an entry says; nothing where it is not JSON, or not an object."""
    try:
        said: Any = loads(value)
    except JSONDecodeError:
        return {}
    return said if said.__class__ is dict else {}
