"""Every source that learns how its events ended, and how it handles that.

All have the numbers 0, 1, 2, ... They are checked on their other side: the table, the server, the
next reader of the file, the callers that wait.
"""

from __future__ import annotations

import json
import math
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from penstock import Flowable, Inbox, inbox, read_jetstream, read_jsonl, read_lines
from penstock.streams.base.errors import Returned
from penstock.streams.nats.cluster.deliveries import Deliveries
from penstock.streams.nats.cluster.layout import Layout
from penstock.streams.nats.cluster.lease_entry import LeaseEntry
from penstock.streams.nats.partition.batches import body_of, header_of
from penstock.streams.nats.partition.floors import Floors
from penstock.streams.nats.partition.partition import Partition
from penstock.streams.runtime.context import Run
from penstock.streams.testing import MemorySink, MemorySource
from tests.helpers.memory_store import MemoryStore
from tests.helpers.nats.model import Client, Server
from tests.helpers.reactive_streams.between import acknowledging, anew, unpacked
from tests.helpers.reactive_streams.far_away import Connection
from tests.helpers.reactive_streams.source_cases import rows_of

__all__ = ["ALL", "Acknowledging"]


class Acknowledging(ABC):
    """One source, over the first `n` numbers."""

    comes_again = frozenset({"fail", "give back"})
    """The endings after which the source has an event again."""
    block = 0
    """For a source that forgets events only in order: how many at once; else 0."""

    def __init__(self, n: int) -> None:
        self.n = n

    @abstractmethod
    def stream(self) -> Flowable[int]: ...

    @abstractmethod
    async def outcome(self) -> tuple[list[int], list[int]]:
        """At the end: the numbers that are done, and those that come again; in any order."""


class _Own(Acknowledging):
    """A source that a user might write."""

    def stream(self) -> Flowable[int]:
        self._told: list[tuple[str, int]] = []
        return acknowledging(self.n, lambda what, number: self._told.append((what, number)))

    async def outcome(self) -> tuple[list[int], list[int]]:
        return (
            [number for what, number in self._told if what == "ack"],
            [number for what, number in self._told if what == "nack"],
        )


class _Memory(Acknowledging):
    def stream(self) -> Flowable[int]:
        self._source = MemorySource(range(self.n))
        return self._source

    async def outcome(self) -> tuple[list[int], list[int]]:
        return self._source.acked, [*self._source.failed, *self._source.returned]


class _Lines(Acknowledging):
    """A file with a position: lines that the next reader does not see are done."""

    def __init__(self, n: int, line: Callable[[int], str], read: Callable[..., Flowable[Any]]):
        super().__init__(n)
        self._line = line
        self._read = read

    def stream(self) -> Flowable[int]:
        folder = Path(tempfile.mkdtemp())
        file = folder / "numbers"
        file.write_text("".join(f"{self._line(number)}\n" for number in range(self.n)))
        self._stream = self._read(file, position=folder / "position")
        return self._stream

    async def outcome(self) -> tuple[list[int], list[int]]:
        again = [number async for number in self._stream]
        return [number for number in range(self.n) if number not in again], again


class _Table(Acknowledging):
    def stream(self) -> Flowable[int]:
        self._store = MemoryStore(json.dumps({"n": number}) for number in range(self.n))
        return unpacked(rows_of(self._store))

    async def outcome(self) -> tuple[list[int], list[int]]:
        store = self._store
        over, again = [*store.finished, *store.failed], [row for row, _ in store.waiting]
        return [row - 1 for row in over], [row - 1 for row in again]


class _Messages(Acknowledging):
    def stream(self) -> Flowable[int]:
        return unpacked(read_jetstream(f"first_{self.n}", follow=False))

    async def outcome(self) -> tuple[list[int], list[int]]:
        told = Connection.told
        return (
            [sequence - 1 for sequence, what in told if what in (b"+ACK", b"+TERM")],
            [sequence - 1 for sequence, what in told if what == b"-NAK"],
        )


class _Partition(Acknowledging):
    """A partition of a cluster, with several events per message: its floor rises in order."""

    block = 4

    def stream(self) -> Flowable[int]:
        def make(run: Run) -> Flowable[Any]:
            server = self._server = Server()
            for number in range(0, self.n, self.block):
                events = [b"%d" % one for one in range(number, number + self.block)]
                server.publish("key", body_of(events, []), header_of(self.block))
            table: Any = server.table
            client: Any = Client(server)
            unused: Any = None
            lease = LeaseEntry(unused, "p.0", b"me", 1, math.inf, run.now)
            deliveries = Deliveries("stream", MemorySink())
            floors = Floors(table, "a", "today")
            floors.start()
            layout = Layout("a", None, None, batch=self.block)
            partition = Partition(0, lease, client, layout, deliveries, floors)

            async def leave() -> None:
                await partition.abandon()
                await floors.stop()
                await client.close()

            run.on_close(leave)
            run.spawn(partition.look(), "partition")
            return deliveries.flowable

        return anew(make, "partition")

    async def outcome(self) -> tuple[list[int], list[int]]:
        over = self._server.table.floor * self.block
        return list(range(over)), list(range(over, self.n))


class _Puts(Acknowledging):
    """Callers that wait: an event that failed is done, because its caller got the error."""

    comes_again = frozenset({"give back"})

    def stream(self) -> Flowable[int]:
        self._over: list[int] = []
        self._again: list[int] = []

        def make(run: Run) -> Inbox[int]:
            values: Inbox[int] = inbox(self.n)

            async def put(number: int) -> None:
                try:
                    await values.put(number, wait=True)
                except Returned:
                    self._again.append(number)
                except ValueError:
                    self._over.append(number)
                else:
                    self._over.append(number)

            for number in range(self.n):
                run.spawn(put(number), "puts")
            return values

        return anew(make, "inbox")

    async def outcome(self) -> tuple[list[int], list[int]]:
        return self._over, self._again


ALL: dict[str, Callable[[int], Acknowledging]] = {
    "a source of one's own": _Own,
    "MemorySource": _Memory,
    "read_lines with a position": partial(_Lines, line=str, read=partial(read_lines, decode=int)),
    "read_jsonl with a position": partial(
        _Lines,
        line=lambda number: json.dumps({"n": number}),
        read=partial(read_jsonl, decode=lambda line: json.loads(line)["n"]),
    ),
    "read_table": _Table,
    "read_jetstream": _Messages,
    "partition": _Partition,
    "inbox": _Puts,
}
