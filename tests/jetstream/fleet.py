"""Worker processes, a publisher, and what the workers' handlers wrote down."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nats.errors import Error

from penstock.load import load
from penstock.publish import publishing
from streams import from_async_iterable
from streams.jetstream.connection import connect, jetstream
from streams.jetstream.layout import layout_of
from streams.jetstream.letters import Letter, letters_of
from streams.jetstream.publisher import Publisher

# Seconds after which something does not happen any more, on however slow a machine.
_PATIENCE = 90.0

PIPELINE = """
import asyncio
import os
import sys
import time

from operators import adaptive_flat_map, distinct_within, group_by, spread
from sinks import for_each
from sources import read_jsonl

LOG, WORKER, SECONDS, WINDOW = sys.argv[1], sys.argv[2], float(sys.argv[3]), float(sys.argv[4])
log = os.open(LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def note(what, event):
    os.write(log, f"{time.time():.6f} {WORKER} {what} {event['key']} {event['n']}\\n".encode())


async def handler(event):
    note("begun", event)
    await asyncio.sleep(SECONDS)
    if event.get("poison"):
        raise ValueError("poison")
    return event


pipeline = (
    read_jsonl()
    .pipe(
        distinct_within(WINDOW, by="id"),
        group_by("key"),
        spread(),
        adaptive_flat_map(handler),
    )
    .to(for_each(lambda event: note("ended", event)))
)
"""


@dataclass
class Outcome:
    """What came of the events: each is (key, n), n counting from 1 for each key."""

    ended: Counter[tuple[str, int]]
    overtaken: list[tuple[str, int]]
    overlapped: list[tuple[str, int]]
    longest_silence: float

    @property
    def repeated(self) -> int:
        """Events that ended more than once, counted each time."""
        return sum(self.ended.values()) - len(self.ended)


class Wire:
    """A connection to a server, on which everything takes `delay` seconds, and through which, once
    it is cut, nothing comes any more."""

    def __init__(self, url: str, delay: float = 0.0) -> None:
        self._delay = delay
        self._host, _, port = url.removeprefix("nats://").partition(":")
        self._port = int(port)
        self._whole = asyncio.Event()
        self._whole.set()
        self._pipes: set[asyncio.Task[None]] = set()
        self.url = ""

    async def lay(self) -> None:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.url = f"nats://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def remove(self) -> None:
        self._server.close()
        for task in self._pipes:
            task.cancel()
        await asyncio.gather(*self._pipes, return_exceptions=True)

    def cut(self) -> None:
        self._whole.clear()

    def mend(self) -> None:
        self._whole.set()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(self._host, self._port)
        for source, sink in ((reader, back), (there, writer)):
            task = asyncio.create_task(self._pipe(source, sink))
            self._pipes.add(task)
            task.add_done_callback(self._pipes.discard)

    async def _pipe(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(65536):
                await self._whole.wait()
                await asyncio.sleep(self._delay)
                sink.write(data)
                await sink.drain()
        except OSError:
            return
        finally:
            sink.transport.abort()


class Fleet:
    """Workers of one pipeline, each a process; killed at the end of the block."""

    def __init__(
        self,
        urls: Sequence[str],
        folder: Path,
        name: str,
        *,
        lease: float = 2.0,
        partitions: int = 12,
        seconds: float = 0.003,
        window: float = 10.0,
        batch: int | None = None,
    ) -> None:
        self.urls = list(urls)
        self.log = folder / "log"
        self.log.touch()
        self.workers: dict[str, subprocess.Popen[bytes]] = {}
        self.sent: Counter[str] = Counter()
        self.wire: Wire | None = None
        self._folder = folder
        self._file = folder / "fleet.py"
        self._file.write_text(PIPELINE, encoding="utf-8")
        self._name = name
        self._lease = lease
        self._settings = [str(seconds), str(window)]
        self._arguments = [str(self.log), "publisher", *self._settings]
        self.layout = layout_of(
            load(str(self._file), self._arguments), name, partitions, room=1 << 26, batch=batch
        )

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.workers.values():
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait()

    def start(self, *names: str, urls: Sequence[str] | None = None) -> None:
        for name in names:
            with open(self._folder / f"{name}.err", "ab") as errors:
                self.workers[name] = subprocess.Popen(
                    [
                        *(sys.executable, "-m", "penstock", "run", str(self._file)),
                        *("--on", ",".join(urls or self.urls), "--name", self._name),
                        *("--lease", str(self._lease), "--worker", name),
                        *("--", str(self.log), name, *self._settings),
                    ],
                    stderr=errors,
                )

    def signal(self, name: str, how: signal.Signals) -> None:
        self.workers[name].send_signal(how)

    def errors(self, name: str) -> str:
        return (self._folder / f"{name}.err").read_text(encoding="utf-8")

    # Publishing, in this process.

    async def prepare(self) -> None:
        client = await connect(self.urls)
        self.layout = await self.layout.prepare(client)
        await client.close()

    async def publish(
        self,
        keys: int,
        rate: float,
        seconds: float,
        poison: tuple[str, int] | None = None,
        times: int = 1,
    ) -> None:
        """Publish events in turn over the keys, so many a second, each of them so many times."""
        client = await connect(self.urls)
        try:

            async def events() -> AsyncIterator[dict[str, Any]]:
                loop = asyncio.get_running_loop()
                began = loop.time()
                for i in range(int(rate * seconds)):
                    key = f"key {i % keys}"
                    self.sent[key] += 1
                    n = self.sent[key]
                    event: dict[str, Any] = {"id": f"{key}/{n}", "key": key, "n": n}
                    if (key, n) == poison:
                        event["poison"] = True
                    for _ in range(times):
                        yield event
                    ahead = began + (i + 1) / rate - loop.time()
                    if ahead > 0.01:
                        await asyncio.sleep(ahead)

            async with Publisher(client, self.layout) as publisher:
                await publishing(from_async_iterable(events), publisher, self.layout).run()
        finally:
            await client.close()

    # What the servers know.

    async def settled(self, *names: str) -> None:
        """Wait until these workers are there and have shared out the partitions."""
        client = await connect(self.urls)
        try:
            roster = await self.layout.roster(client, self._lease)
            async with asyncio.timeout(_PATIENCE):
                while True:
                    members = (await roster.members()).values()
                    owned = [one for member in members for one in member["partitions"]]
                    there = {member["name"] for member in members if member["partitions"]}
                    if there == set(names) and len(owned) == self.layout.partitions:
                        return
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(self._story()) from None
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
            async with asyncio.timeout(_PATIENCE):
                while True:
                    with suppress(Error, TimeoutError):
                        streams = [info.cluster for info in await js.streams_info()]
                        if all(
                            one and one.leader and all(copy.current for copy in one.replicas or ())
                            for one in streams
                        ):
                            return
                    await asyncio.sleep(0.05)
        finally:
            await client.close()

    async def letters(self, count: int) -> list[Letter]:
        """The dead letters, when there are so many."""
        client = await connect(self.urls)
        try:
            async with asyncio.timeout(_PATIENCE):
                while True:
                    js = jetstream(client)
                    found = [letter async for letter in letters_of(js, self.layout.letters)]
                    if len(found) >= count:
                        return found
                    await asyncio.sleep(0.05)
        finally:
            await client.close()

    async def lay_wire(self) -> None:
        """Lead to a server by a wire that can be cut."""
        self.wire = Wire(self.urls[0])
        await self.wire.lay()

    # Reading what was written down.

    def lines(self) -> list[tuple[float, str, str, str, int]]:
        found: list[tuple[float, str, str, str, int]] = []
        for line in self.log.read_text(encoding="utf-8").splitlines():
            at, worker, what, key, number, n = line.split()
            found.append((float(at), worker, what, f"{key} {number}", int(n)))
        return sorted(found)

    async def until(self, true: Callable[[], bool], patience: float = _PATIENCE) -> None:
        deadline = time.monotonic() + patience
        while not true():
            assert time.monotonic() < deadline, self._story()
            await asyncio.sleep(0.05)

    async def until_all_ended(self, *, but: frozenset[tuple[str, int]] = frozenset()) -> None:
        await self.until(lambda: not (self.missing() - but))

    def missing(self) -> set[tuple[str, int]]:
        ended = {(key, n) for _, _, what, key, n in self.lines() if what == "ended"}
        return {(key, n) for key, last in self.sent.items() for n in range(1, last + 1)} - ended

    def _story(self) -> str:
        errors = {name: self.errors(name)[-2000:] for name in self.workers}
        return f"{len(self.missing())} of {self.sent.total()} are missing; workers said {errors}"

    def outcome(self) -> Outcome:
        ended: Counter[tuple[str, int]] = Counter()
        done: defaultdict[str, int] = defaultdict(int)
        working: dict[str, tuple[str, int]] = {}
        overtaken: list[tuple[str, int]] = []
        overlapped: list[tuple[str, int]] = []
        silence, last = 0.0, None
        for at, worker, what, key, n in self.lines():
            if what == "begun":
                if n > done[key] + 1:
                    overtaken.append((key, n))
                other = working.get(key)
                if other is not None and other[0] != worker and self._is_there(other[0]):
                    overlapped.append((key, n))
                working[key] = (worker, n)
                if last is not None:
                    silence = max(silence, at - last)
                last = at
            else:
                ended[key, n] += 1
                done[key] = max(done[key], n)
                working.pop(key, None)
        return Outcome(ended, overtaken, overlapped, silence)

    def _is_there(self, worker: str) -> bool:
        """Whether a worker lives: what one that was killed had begun has ended with it."""
        return self.workers[worker].poll() is None
