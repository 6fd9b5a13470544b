"""States of a pipeline on many machines: workers are killed, frozen and cut off, servers restarted.

Whatever happens, the count of each key is the number of its events, exactly.
"""

from __future__ import annotations

import asyncio
import json
import random
import signal
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from penstock.streams.nats.client.connection import connect, jetstream
from penstock.streams.nats.client.server import Servers
from penstock.streams.state.codec import key_in
from penstock.streams.state.jetstream.backend import JetStream
from tests.helpers.system.fleet import PATIENCE, Fleet

CLIENTS = 40

Counts = Callable[[], dict[str, list[int]]]

PIPELINE = """
import asyncio
import random
import sys

from penstock import Store, adaptive_flat_map, for_each, group_by, read_jsonl, spread, stateful
from tests.helpers.system.log import Log

NAME, SECONDS = sys.argv[2], float(sys.argv[3])
log = Log(sys.argv[1], NAME)
store = Store("{url}", local={local}, cache=20)


def count(state, event, ctx):
    if event["seq"] % 10 == 7:
        ctx.timer(f"of {event['seq']}", after=0.2)
    return [state[0] + 1, state[1]], [event]


def fired(state, timer, ctx):
    return [state[0], state[1] + 1], []


async def work(event):
    await asyncio.sleep(SECONDS * random.random())
    return event


pipeline = (
    read_jsonl()
    .pipe(
        stateful(count, by="client", start=[0, 0], on_timer=fired, store=store),
        group_by("client"),
        spread(),
        adaptive_flat_map(work),
    )
    .to(for_each(lambda event: log.sink(event["client"], event["seq"])))
)
"""

WINDOWS = """
import sys

from penstock import Store, agg, event_time, for_each, group_by, read_jsonl, spread
from penstock import tumbling, window
from tests.helpers.system.log import Log

log = Log(sys.argv[1], sys.argv[2])
store = Store("{url}", local={local}, cache=20)
pipeline = (
    read_jsonl()
    .pipe(
        event_time("seq", lateness=5, idle=5, max_ahead=None),
        window(tumbling(20), agg.count(), by="client", store=store),
        group_by("key"),
        spread(),
    )
    .to(for_each(lambda one: log.sink(f"{one.key} {one.start:g}", one.value)))
)
"""

# The name of a client, which the table has, is what its events are told apart by in the end.
TABLE = (
    PIPELINE.replace("import Store,", "import Store, lookup, ops, read_jetstream, table,", 1)
    .replace(
        "        stateful(count,",
        """        lookup(names, by="client"),
        ops.map(lambda pair: {**pair[0], "name": pair[1]["name"]}),
        stateful(count,""",
    )
    .replace(
        "\n\ndef count(",
        """
names = table(read_jetstream("{names}", servers={servers}), by="client", whole=True)


def count(""",
        1,
    )
    .replace('log.sink(event["client"]', 'log.sink(event["name"]')
)


def fleet_of(
    servers: Servers,
    folder: Path,
    draw: random.Random,
    partitions: int = 12,
    pipeline: str = PIPELINE,
) -> Fleet:
    """Workers with a store; each has a copy of its own, or a temporary one."""
    url = f"{','.join(servers.urls)}/counts-{folder.name}"
    local = f'"{folder}/" + sys.argv[2]' if draw.random() < 0.7 else "None"
    pipeline = pipeline.replace("{url}", url).replace("{local}", local)
    name = f"counted-{folder.name}"
    batch = draw.choice([None, 1])
    return Fleet(
        servers.urls, folder, name, pipeline=pipeline, partitions=partitions, seconds=0.01,
        batch=batch,
    )  # fmt: skip


@asynccontextmanager
async def published(fleet: Fleet, rate: float = 400, seconds: float = 4) -> AsyncGenerator[None]:
    """Events are published meanwhile, and all of them arrive."""
    publishing = asyncio.create_task(fleet.publish(CLIENTS, rate, seconds))
    yield
    await publishing
    await fleet.until_all_arrived()


async def check_counts(
    fleet: Fleet, servers: Servers, folder: Path, read: Counts | None = None
) -> None:
    """Let the workers end, and compare the states with what was sent: each event has changed the
    states once, and each timer has fired once."""
    read = read or partial(counts, servers, folder)
    wanted = {client: [sent, (sent + 3) // 10] for client, sent in fleet.sent.items()}
    deadline = time.monotonic() + PATIENCE
    while await asyncio.to_thread(read) != wanted:
        if time.monotonic() > deadline:
            # It is shown below.
            break
    for name, process in fleet.workers.items():
        if process.poll() is None:
            fleet.drain(name)
    for process in fleet.workers.values():
        await asyncio.to_thread(process.wait, 60)
    states = await asyncio.to_thread(read)
    assert states == wanted, {key: one for key, one in states.items() if one != wanted[key]}


@asynccontextmanager
async def at_work(
    servers: Servers, folder: Path, draw: random.Random, *names: str
) -> AsyncGenerator[Fleet]:
    """Workers that have all partitions; in the end the states are compared with what was sent."""
    with fleet_of(servers, folder, draw) as fleet:
        await fleet.prepare()
        fleet.start(*names)
        await fleet.settled(*names)
        yield fleet
        await check_counts(fleet, servers, folder)


def counts(servers: Servers, folder: Path) -> dict[str, list[int]]:
    backend = JetStream(f"{servers.urls[0]}/counts-{folder.name}")
    try:
        backend.open_to_read()
        (stage,) = backend.stages()
        return {key_in(row.key): json.loads(row.state) for row in backend.scan(stage.name)}
    finally:
        backend.close()


async def wait(draw: random.Random) -> None:
    await asyncio.sleep(draw.uniform(0.2, 1.5))


@pytest.mark.parametrize("members", [2, 3])
async def test_workers_that_are_killed_leave_each_event_in_the_counts_once(
    servers: Servers, tmp_path: Path, run_seed: int, members: int
) -> None:
    draw = random.Random(run_seed)
    names = [f"worker{n}" for n in range(members)]
    async with at_work(servers, tmp_path, draw, *names) as fleet, published(fleet):
        for _ in range(2):
            await wait(draw)
            killed = draw.choice(names)
            fleet.kill(killed)
            await wait(draw)
            fleet.start(killed)


async def test_a_worker_that_is_frozen_past_its_lease_commits_nothing_more(
    servers: Servers, tmp_path: Path, run_seed: int
) -> None:
    draw = random.Random(run_seed)
    async with (
        at_work(servers, tmp_path, draw, "one", "two") as fleet,
        published(fleet, seconds=6),
    ):
        await wait(draw)
        fleet.freeze("one")
        # Longer than its lease of two seconds: the other one has its partitions.
        await asyncio.sleep(draw.uniform(2.5, 5))
        fleet.wake("one")


async def test_a_worker_that_is_cut_off_commits_nothing_more(
    servers: Servers, tmp_path: Path, run_seed: int
) -> None:
    draw = random.Random(run_seed)
    with fleet_of(servers, tmp_path, draw) as fleet:
        await fleet.prepare()
        await fleet.lay_wire()
        assert fleet.wire is not None
        # Its store goes by the wire too.
        urls = ",".join(servers.urls)
        file = tmp_path / "fleet.py"
        file.write_text(
            file.read_text().replace(
                f'Store("{urls}/',
                f'Store(("{fleet.wire.url}/" if NAME == "one" else "{urls}/") + "',
            )
        )
        fleet.start("one", urls=[fleet.wire.url])
        fleet.start("two")
        await fleet.settled("one", "two")
        async with published(fleet, seconds=6):
            await wait(draw)
            fleet.wire.cut()
            await asyncio.sleep(draw.uniform(2.5, 5))
            fleet.wire.mend()
        await check_counts(fleet, servers, tmp_path)
        await fleet.wire.remove()


@pytest.mark.parametrize("count", [1, 3])
async def test_servers_that_are_killed_leave_each_event_in_the_counts_once(
    tmp_path: Path, run_seed: int, count: int
) -> None:
    draw = random.Random(run_seed)
    with Servers(tmp_path / "servers", count) as servers:
        async with (
            at_work(servers, tmp_path, draw, "one", "two") as fleet,
            published(fleet, seconds=6),
        ):
            for _ in range(2):
                await wait(draw)
                one = draw.randrange(count)
                servers.stop(one, signal.SIGKILL)
                await asyncio.sleep(draw.choice([0, 1, 3]))
                servers.start(one)
                await asyncio.to_thread(servers.wait)


async def test_a_worker_that_leaves_hands_its_states_over(
    servers: Servers, tmp_path: Path, run_seed: int
) -> None:
    draw = random.Random(run_seed)
    async with at_work(servers, tmp_path, draw, "one", "two") as fleet, published(fleet):
        await wait(draw)
        fleet.start("three")
        await fleet.settled("one", "two", "three")
        fleet.drain("one")
        await fleet.settled("two", "three")


async def test_workers_that_are_killed_find_all_rows_of_a_table_that_each_of_them_has_whole(
    servers: Servers, tmp_path: Path, run_seed: int
) -> None:
    draw = random.Random(run_seed)
    names = f"names-{tmp_path.name}"
    client = await connect(servers.urls)
    js: Any = jetstream(client)
    await js.add_stream(name=names, subjects=[f"{names}.*"])
    for number in range(CLIENTS):
        row = {"client": f"client {number}", "name": f"client {number}"}
        await js.publish(f"{names}.{number}", json.dumps(row).encode())
    await client.close()
    pipeline = TABLE.replace("{names}", names).replace("{servers}", repr(servers.urls))
    with fleet_of(servers, tmp_path, draw, pipeline=pipeline) as fleet:
        await fleet.prepare()
        fleet.start("one", "two")
        await fleet.settled("one", "two")
        async with published(fleet):
            await wait(draw)
            fleet.kill("one")
            await wait(draw)
            fleet.start("one")
        await check_counts(fleet, servers, tmp_path)


async def test_windows_of_workers_that_are_killed_have_each_event_once(
    server: Servers, tmp_path: Path, run_seed: int
) -> None:
    draw = random.Random(run_seed)
    with fleet_of(server, tmp_path, draw, pipeline=WINDOWS) as fleet:
        await fleet.prepare()
        fleet.start("one", "two")
        await fleet.settled("one", "two")
        publishing = asyncio.create_task(fleet.publish(CLIENTS, 400, 8))
        for _ in range(2):
            await wait(draw)
            killed = draw.choice(["one", "two"])
            fleet.kill(killed)
            await wait(draw)
            fleet.start(killed)
        await publishing
        # The numbers of the events are their times. The last window closes in the silence.
        wanted = {
            (f"{client} {start}", min(last, start + 19) - max(1, start) + 1)
            for client, last in fleet.sent.items()
            for start in range(0, last + 1, 20)
        }
        await fleet.until(lambda: wanted <= results(fleet))
        assert results(fleet) == wanted


def results(fleet: Fleet) -> set[tuple[str, int]]:
    """The windows that were sent, some of them twice, with their counts."""
    found = (one for one in fleet.entries() if one.what == "sink")
    return {(one.client, one.seq) for one in found}
