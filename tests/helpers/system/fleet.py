"""Worker processes, publishers, and the log that the workers' handlers write.

A fleet kills, freezes and wakes its workers, and records that in the log too. Servers are stopped
and frozen by `Servers`, connections are cut by `Wire`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from nats.errors import Error
from orjson import OPT_APPEND_NEWLINE, dumps

from penstock import from_async_iterable
from penstock.command.cluster.nats import publishing
from penstock.command.pipelines.load import load
from penstock.streams.nats.client.answers import answered
from penstock.streams.nats.client.connection import connect, jetstream
from penstock.streams.nats.cluster.layout import layout_of
from penstock.streams.nats.cluster.letters import Letter, letters_of
from penstock.streams.nats.cluster.publisher import Publisher
from tests.helpers.servers.wire import Wire
from tests.helpers.system.checker import Verdict, check
from tests.helpers.system.children import freeze
from tests.helpers.system.log import Entry, Log, entries_of

__all__ = ["ENVIRONMENT", "PATIENCE", "PIPELINE", "Fleet"]

PATIENCE = 90.0
"""Seconds after which something will not happen any more, even on a slow machine."""

PIPELINE = """
import asyncio
import sys

from penstock import adaptive_flat_map, distinct_within, group_by, spread
from penstock import for_each
from penstock import read_jsonl
from tests.helpers.system.log import Log

SECONDS, WINDOW = float(sys.argv[3]), float(sys.argv[4])
log = Log(sys.argv[1], sys.argv[2])


async def handler(event):
    with log.working(event["client"], event["seq"]):
        await asyncio.sleep(SECONDS)
        if event.get("poison"):
            raise ValueError("poison")
    return event


pipeline = (
    read_jsonl()
    .pipe(
        distinct_within(WINDOW, by="id"),
        group_by("client"),
        spread(),
        adaptive_flat_map(handler),
    )
    .to(for_each(lambda event: log.sink(event["client"], event["seq"])))
)
"""
"""Its arguments: the log, the worker's name, seconds of a handler, the window for duplicates."""

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}


class Fleet:
    """Workers of one pipeline, each a process; killed at the end of the block.

    `sent` counts the events of each client, which are numbered from 1.
    """

    def __init__(
        self,
        urls: Sequence[str],
        folder: Path,
        name: str,
        *,
        pipeline: str = PIPELINE,
        lease: float = 2.0,
        partitions: int = 12,
        seconds: float = 0.003,
        window: float = 10.0,
        batch: int | None = None,
    ) -> None:
        self.urls = list(urls)
        self.log = folder / "log"
        self.workers: dict[str, subprocess.Popen[bytes]] = {}
        self.publishers: list[subprocess.Popen[bytes]] = []
        self.sent: Counter[str] = Counter()
        self.wire: Wire | None = None
        self._hand = Log(self.log, "fleet")
        self._there: set[str] = set()
        self._folder = folder
        self._file = folder / "fleet.py"
        self._file.write_text(pipeline, encoding="utf-8")
        self._name = name
        self._lease = lease
        self._settings = [str(seconds), str(window)]
        self._arguments = [str(self.log), "publisher", *self._settings]
        self._batch = batch
        self._partitions = partitions
        self.layout = layout_of(
            load(str(self._file), self._arguments), name, partitions, room=1 << 26, batch=batch
        )

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, *_: object) -> None:
        for process in [*self.workers.values(), *self.publishers]:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait()
        self._hand.close()

    # Workers.

    def start(self, *names: str, urls: Sequence[str] | None = None) -> None:
        for name in names:
            self._reap()
            with open(self._folder / f"{name}.err", "ab") as errors:
                self.workers[name] = subprocess.Popen(
                    [
                        *(sys.executable, "-m", "penstock", "run", str(self._file)),
                        *("--on", ",".join(urls or self.urls), "--name", self._name),
                        *("--lease", str(self._lease), "--worker", name),
                        *("--", str(self.log), name, *self._settings),
                    ],
                    stderr=errors,
                    env=ENVIRONMENT,
                )
            self._there.add(name)

    def drain(self, name: str) -> None:
        self.workers[name].send_signal(signal.SIGTERM)

    def kill(self, name: str) -> None:
        self.workers[name].kill()
        self.workers[name].wait()
        self._reap()

    def freeze(self, name: str) -> None:
        """Suspend a worker until it is woken."""
        freeze(self.workers[name])
        self._hand.note("frozen", process=name)

    def wake(self, name: str) -> None:
        self._hand.note("woken", process=name)
        self.workers[name].send_signal(signal.SIGCONT)

    def errors(self, name: str) -> str:
        """The standard error of a worker, or of "publisher" with its number."""
        return (self._folder / f"{name}.err").read_text(encoding="utf-8")

    def _reap(self) -> None:
        """Record who has ended."""
        for name in [one for one in self._there if self.workers[one].poll() is not None]:
            self._there.remove(name)
            self._hand.note("gone", process=name)

    # Publishing.

    async def prepare(self) -> None:
        client = await connect(self.urls)
        self.layout = await self.layout.prepare(client)
        await client.close()

    def event(self, client: str, **fields: Any) -> dict[str, Any]:
        """The next event of a client."""
        self.sent[client] += 1
        seq = self.sent[client]
        return {"id": f"{client}/{seq}", "client": client, "seq": seq, **fields}

    async def publish(
        self,
        clients: int,
        rate: float,
        seconds: float,
        poison: tuple[str, int] | None = None,
        times: int = 1,
    ) -> None:
        """Publish events of the clients in rotation, in this process: how many per second, and each
        how many times."""

        async def events() -> AsyncIterator[dict[str, Any]]:
            loop = asyncio.get_running_loop()
            began = loop.time()
            for i in range(int(rate * seconds)):
                event = self.event(f"client {i % clients}")
                if (event["client"], event["seq"]) == poison:
                    event["poison"] = True
                for _ in range(times):
                    yield event
                ahead = began + (i + 1) / rate - loop.time()
                if ahead > 0.01:
                    await asyncio.sleep(ahead)

        client = await connect(self.urls)
        try:
            async with Publisher(client, self.layout) as publisher:
                await publishing(from_async_iterable(events), publisher, self.layout).run()
        finally:
            await client.close()

    def start_publisher(self, events: Iterable[Any]) -> subprocess.Popen[bytes]:
        """Publish by the command; events that are bytes go as they are."""
        lines = self._folder / f"publisher{len(self.publishers)}.jsonl"
        with open(lines, "wb") as file:
            for event in events:
                file.write(
                    event if isinstance(event, bytes) else dumps(event, option=OPT_APPEND_NEWLINE)
                )
        with open(lines.with_suffix(".err"), "ab") as errors:
            batch = [] if self._batch is None else ["--batch", str(self._batch)]
            process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "penstock", "publish", str(self._file)),
                    *("--on", ",".join(self.urls), "--name", self._name),
                    *("--partitions", str(self._partitions), *batch),
                    *("--input", str(lines), "--report", "text"),
                    *("--", *self._arguments),
                ],
                stderr=errors,
                env=ENVIRONMENT,
            )
        self.publishers.append(process)
        return process

    # Reading the servers.

    async def settled(self, *names: str) -> None:
        """Wait until these workers are there and have shared the partitions."""
        client = await connect(self.urls)
        try:
            # One answer may take longer than its timeout.
            roster = await answered(lambda: self.layout.roster(client, self._lease))

            async def are_settled() -> bool:
                members = (await answered(roster.members)).values()
                owned = [one for member in members for one in member["partitions"]]
                there = {member["name"] for member in members if member["partitions"]}
                return there == set(names) and len(owned) == self.layout.partitions

            await self._until_servers_say(are_settled)
        finally:
            await client.close()

    async def leader(self) -> int:
        """The number of the server that leads the stream."""
        client = await connect(self.urls)
        info = await jetstream(client).stream_info(self.layout.stream)
        await client.close()
        assert info.cluster is not None
        assert info.cluster.leader is not None
        return int(info.cluster.leader.removeprefix("server"))

    async def replicated(self) -> None:
        """Wait until every stream has a leader, and every copy of it has caught up."""
        client = await connect(self.urls)
        try:
            js = jetstream(client, 1)

            async def are_copied() -> bool:
                with suppress(Error, TimeoutError):
                    streams = [info.cluster for info in await js.streams_info()]
                    return all(
                        one and one.leader and all(copy.current for copy in one.replicas or ())
                        for one in streams
                    )
                return False

            await self._until_servers_say(are_copied)
        finally:
            await client.close()

    async def letters(self, count: int) -> list[Letter]:
        """The dead letters, when there are `count`."""
        client = await connect(self.urls)
        try:
            found: list[Letter] = []

            async def are_there() -> bool:
                js = jetstream(client)
                found[:] = [letter async for letter in letters_of(js, self.layout.letters)]
                return len(found) >= count

            await self._until_servers_say(are_there)
            return found
        finally:
            await client.close()

    async def _until_servers_say(self, true: Callable[[], Awaitable[bool]]) -> None:
        # Not by a timeout, whose single cancellation a client may swallow.
        deadline = time.monotonic() + PATIENCE
        while not await true():
            assert time.monotonic() < deadline, self._story()
            await asyncio.sleep(0.05)

    async def lay_wire(self) -> None:
        """Connect to a server by a wire that can be cut."""
        self.wire = Wire(self.urls[0])
        await self.wire.lay()

    # Reading the log.

    def entries(self) -> list[Entry]:
        self._reap()
        return entries_of(self.log)

    def verdict(self, *, given_up: Collection[tuple[str, int]] = ()) -> Verdict:
        return check(self.entries(), self.sent, given_up)

    async def until(self, true: Callable[[], bool], patience: float = PATIENCE) -> None:
        deadline = time.monotonic() + patience
        while not true():
            self._reap()
            assert time.monotonic() < deadline, self._story()
            await asyncio.sleep(0.05)

    async def until_all_arrived(self, *, but: frozenset[tuple[str, int]] = frozenset()) -> None:
        await self.until(lambda: not (self.missing() - but))

    def missing(self) -> set[tuple[str, int]]:
        """Events that have not arrived at the sink."""
        return self.verdict().lost

    def _story(self) -> str:
        errors = {name: self.errors(name)[-2000:] for name in self.workers}
        return f"{len(self.missing())} of {self.sent.total()} are missing; workers said {errors}"
