"""A message of a server is the same event for each reader, and none of a stream made again is."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

from nats.js.api import StorageType, StreamConfig

from penstock import read_jetstream
from penstock.streams.nats.client.connection import connect, jetstream
from penstock.streams.nats.client.server import Servers
from tests.helpers.identified import Found, identified
from tests.helpers.servers.command import Penstock, Worker, eventually, lines

KILLED = """
import asyncio, sys
from penstock import adaptive_flat_map, Fixed, read_jetstream
from tests.helpers.identified import identified

class Printed(list):
    def append(self, found):
        print(f"{found[0]} {found[1]}\\n", end="", flush=True)

async def handler(message):
    await asyncio.sleep(0.002)
    return message["n"]

messages = read_jetstream("kept", "reader", sys.argv[1], follow=False, lease=1)
asyncio.run(messages.pipe(adaptive_flat_map(handler, Fixed(4))).to(identified(Printed())).run())
"""


async def filled(servers: Servers, count: int, *, anew: bool = False) -> None:
    """Make the stream `kept` with some messages, anew if it exists."""
    client = await connect(servers.urls)
    js = jetstream(client)
    if anew:
        await js.delete_stream("kept")
    # Not in files: a server may forget to delete them, and a stream made again would have them.
    kept = StreamConfig(name="kept", subjects=["kept.>"], storage=StorageType.MEMORY)
    await js.add_stream(kept)
    for n in range(count):
        await js.publish("kept.new", b'{"n": %d}' % n)
    await client.close()


def test_a_message_has_one_identity_whenever_its_reader_is_killed(server: Servers) -> None:
    asyncio.run(filled(server, 40))
    seen: dict[int, set[str]] = {}
    for until in (5, 11, 1000):
        command = [sys.executable, "-c", KILLED, server.urls[0]]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as reader:
            assert reader.stdout is not None
            for count, entry in enumerate(reader.stdout):
                number, identity = entry.split()
                seen.setdefault(int(number), set()).add(identity)
                if count == until:
                    reader.kill()
    generation = next(iter(seen[0])).rpartition(":")[0]
    assert generation.startswith("kept@")
    assert seen == {n: {f"{generation}:{n + 1}"} for n in range(40)}


def test_messages_are_in_order_and_those_of_a_stream_that_was_made_again_are_others(
    server: Servers,
) -> None:
    async def work(*, anew: bool) -> Found:
        await filled(server, 9, anew=anew)
        found: Found = []
        await read_jetstream("kept", None, server.urls, follow=False).to(identified(found)).run()
        return found

    async def both() -> None:
        client = await connect(server.urls)
        await jetstream(client).delete_stream("kept")
        await client.close()
        first, second = await work(anew=False), await work(anew=True)
        for found in (first, second):
            assert all(one < other for (_, one), (_, other) in pairwise(found))
        for (_, one), (_, other) in zip(first, second, strict=True):
            assert (one.partition, one.sequence) == (other.partition, other.sequence)
            assert one.generation != other.generation

    asyncio.run(both())


FLEET = """
import asyncio, os, signal
from penstock import adaptive_flat_map, group_by, read_jsonl, spread
from tests.helpers.identified import identified

seen = os.open("seen.txt", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

class Written(list):
    count = 0

    def append(self, found):
        os.write(seen, f"{found[0]} {found[1]}\\n".encode())
        self.count += 1
        if self.count == 10 and os.path.exists("kills"):
            os.kill(os.getpid(), signal.SIGKILL)

async def handler(event):
    await asyncio.sleep(0.02)
    return event["n"]

pipeline = (
    read_jsonl()
    .pipe(group_by("n"), spread(), adaptive_flat_map(handler))
    .to(identified(Written()))
)
"""


def test_an_event_of_a_fleet_is_the_same_for_each_worker_and_no_other_is(
    penstock: Penstock, server: Servers, tmp_path: Path
) -> None:
    (tmp_path / "pipe.py").write_text(FLEET, encoding="utf-8")
    on = ("--on", server.urls[0], "--name", "identified")

    def seen() -> list[list[str]]:
        path = tmp_path / "seen.txt"
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []

    def worked_on(kills: int) -> dict[int, set[str]]:
        (tmp_path / "seen.txt").unlink(missing_ok=True)
        events = [{"n": n} for n in range(60)]
        fed = penstock("publish", "pipe.py", "--partitions", "2", *on, given=lines(*events))
        assert fed.returncode == 0, fed.stderr
        (tmp_path / "kills").touch()
        for _ in range(kills):
            with Worker(tmp_path, *on, "--lease", "2") as worker:
                assert worker.process.wait(60) == -signal.SIGKILL
        (tmp_path / "kills").unlink()
        with Worker(tmp_path, *on, "--lease", "2") as worker:
            eventually(lambda: "0 messages unfinished" in penstock("status", *on).stdout)
            worker.drain()
        found: dict[int, set[str]] = {}
        for number, identity in seen():
            found.setdefault(int(number), set()).add(identity)
        return found

    async def delete() -> None:
        client = await connect(server.urls)
        js = jetstream(client)
        for info in await js.streams_info():
            if "identified" in str(info.config.name):
                await js.delete_stream(str(info.config.name))
        await client.close()

    first = worked_on(kills=2)
    asyncio.run(delete())
    second = worked_on(kills=0)
    for found in (first, second):
        assert sorted(found) == list(range(60))
        assert all(len(one) == 1 for one in found.values())
        assert len({one for of in found.values() for one in of}) == 60
    assert not {one for of in first.values() for one in of} & {
        one for of in second.values() for one in of
    }
