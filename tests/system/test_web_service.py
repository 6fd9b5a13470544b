"""The services of docs/web-service.md, under 200 clients and a SIGTERM in the middle."""

from __future__ import annotations

import asyncio
import json
import random
import re
import signal
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import aiohttp
import pytest

PAGE = Path(__file__).parents[2] / "docs" / "web-service.md"
CLIENTS = 200
CUSTOMERS = 40
SOCKET = "hooks.sock"
SERVERS = {
    "aiohttp": ["aiohttp.web", "-U", SOCKET, "service:make_app"],
    "starlette": ["uvicorn", "--uds", SOCKET, "starlette_service:app"],
}
# Patience with a busy machine; nothing is measured.
PATIENCE = 60.0


@dataclass
class Heard:
    """The answers to the clients, by id; ids without an answer are in neither.

    ``served`` are the clients that got 200 at least once.
    """

    billed: set[str] = field(default_factory=set)
    served: set[int] = field(default_factory=set)
    refused: dict[str, int] = field(default_factory=dict)
    client_of: dict[str, int] = field(default_factory=dict)


def put_page_into(folder: Path, *, wait: bool) -> None:
    page = PAGE.read_text(encoding="utf-8")
    for code in re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        name = code.splitlines()[0].removeprefix("# ")
        (folder / name).write_text(
            code if wait else code.replace(", wait=True", ""), encoding="utf-8"
        )


async def client(
    name: int,
    session: aiohttp.ClientSession,
    ids: Iterator[int],
    rng: random.Random,
    heard: Heard,
    stopping: asyncio.Event,
) -> None:
    """Send one hook after another until the service is gone; every tenth is sent twice."""
    while True:
        identity = str(next(ids))
        heard.client_of[identity] = name
        hook = {"id": identity, "customer": name % CUSTOMERS, "amount": 1}
        for _ in range(1 + (rng.random() < 0.1)):
            try:
                async with session.post("http://service/hooks", json=hook) as answer:
                    if answer.status == 200:
                        heard.billed.add(identity)
                        heard.served.add(name)
                    else:
                        heard.refused[identity] = answer.status
            except aiohttp.ClientOSError:
                # The queue of a Unix socket for those that connect may be full for a moment, which
                # asyncio takes for a connection under way: it fails when it is written to.
                if stopping.is_set():
                    return
                await asyncio.sleep(0.01)
            except (aiohttp.ClientError, ConnectionError):
                return


async def listening(path: Path, process: asyncio.subprocess.Process) -> None:
    async with asyncio.timeout(PATIENCE):
        while not await asyncio.to_thread(path.exists):
            assert process.returncode is None
            await asyncio.sleep(0.05)


async def story(folder: Path, server: str, seed: int) -> Heard:
    rng = random.Random(seed)
    heard = Heard()
    enough = rng.randrange(500, 2500)
    with (folder / "log.txt").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", *SERVERS[server], cwd=folder, stdout=log, stderr=log
        )
    try:
        await listening(folder / SOCKET, process)
        connector = aiohttp.UnixConnector(str(folder / SOCKET), limit=0)
        ids = count()
        stopping = asyncio.Event()
        async with aiohttp.ClientSession(connector=connector) as session:
            clients = [
                asyncio.create_task(client(name, session, ids, rng, heard, stopping))
                for name in range(CLIENTS)
            ]
            async with asyncio.timeout(PATIENCE):
                while len(heard.billed) < enough or len(heard.served) < CLIENTS:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                stopping.set()
                process.send_signal(signal.SIGTERM)
                await asyncio.gather(*clients)
        status = await asyncio.wait_for(process.wait(), PATIENCE)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    # uvicorn ends by the signal itself when it has shut down.
    assert status in (0, -signal.SIGTERM), (folder / "log.txt").read_text(encoding="utf-8")
    return heard


@pytest.mark.parametrize("wait", [True, False], ids=["wait", "accept"])
@pytest.mark.parametrize("server", SERVERS)
def test_no_hook_that_a_client_knows_as_accepted_is_lost_by_a_shutdown(
    server: str, wait: bool, run_seed: int, tmp_path: Path
) -> None:
    put_page_into(tmp_path, wait=wait)
    heard = asyncio.run(story(tmp_path, server, run_seed))
    text = (tmp_path / "billed.jsonl").read_text(encoding="utf-8")
    billed = [json.loads(line) for line in text.splitlines()]
    ids = [line["id"] for line in billed]
    print(f"{len(heard.client_of)} sent, {len(heard.billed)} told 200, {len(ids)} billed")
    assert len(ids) == len(set(ids)), "billed twice"
    assert heard.billed <= set(ids), "lost"
    # A hook that was refused can only have got in with its duplicate.
    assert heard.refused.keys() & set(ids) <= heard.billed
    assert set(heard.refused.values()) <= {503}
    # Each client sent one after another, all to one customer.
    by_client: dict[int, list[int]] = defaultdict(list)
    for identity in ids:
        by_client[heard.client_of[identity]].append(int(identity))
    assert len(by_client) == CLIENTS
    assert all(own == sorted(own) for own in by_client.values()), "overtaken"
