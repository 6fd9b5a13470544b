"""The service of docs/how-to/answers.md, under 200 clients and a SIGTERM in the middle."""

from __future__ import annotations

import asyncio
import json
import random
import re
import signal
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import aiohttp

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "answers.md"
CLIENTS = 200
SOCKET = "scores.sock"
# Patience with a busy machine; nothing is measured.
PATIENCE = 60.0


class Heard:
    """What the clients heard: answers by id, how many of those to duplicates, other statuses."""

    def __init__(self) -> None:
        self.answers: dict[str, list[object]] = {}
        self.duplicates = 0
        self.words: dict[str, int] = {}
        self.statuses: set[int] = set()


async def client(
    session: aiohttp.ClientSession,
    ids: Iterator[int],
    rng: random.Random,
    heard: Heard,
    stopping: asyncio.Event,
) -> None:
    """Send one text after another until the service is gone; every tenth is sent twice."""
    while True:
        identity = str(next(ids))
        heard.words[identity] = words = rng.randrange(1, 50)
        text = {"id": identity, "text": "word " * words}
        for again in range(1 + (rng.random() < 0.1)):
            try:
                async with session.post("http://service/scores", json=text) as answer:
                    if answer.status == 200:
                        heard.answers.setdefault(identity, []).append(await answer.json())
                        heard.duplicates += again
                    else:
                        heard.statuses.add(answer.status)
            except aiohttp.ClientOSError:
                # As in test_web_service.py.
                if stopping.is_set():
                    return
                await asyncio.sleep(0.01)
            except (aiohttp.ClientError, ConnectionError):
                return


async def story(folder: Path, rng: random.Random) -> Heard:
    heard, stopping = Heard(), asyncio.Event()
    with (folder / "log.txt").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "uvicorn", "--uds", SOCKET, "scoring_service:app"),
            cwd=folder,
            stdout=log,
            stderr=log,
        )
    try:
        connector = aiohttp.UnixConnector(str(folder / SOCKET), limit=0)
        async with aiohttp.ClientSession(connector=connector) as session:
            async with asyncio.timeout(PATIENCE):
                while not await asyncio.to_thread((folder / SOCKET).exists):
                    assert process.returncode is None
                    await asyncio.sleep(0.05)
                ids, enough = count(), rng.randrange(500, 2500)
                clients = [
                    asyncio.create_task(client(session, ids, rng, heard, stopping))
                    for _ in range(CLIENTS)
                ]
                while len(heard.answers) < enough:  # noqa: ASYNC110
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


def test_every_answer_is_that_of_its_request_and_everything_answered_is_done(
    run_seed: int, tmp_path: Path
) -> None:
    page = PAGE.read_text(encoding="utf-8")
    for code in re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        name = code.splitlines()[0].removeprefix("# ")
        (tmp_path / name).write_text(code, encoding="utf-8")
    heard = asyncio.run(story(tmp_path, random.Random(run_seed)))
    text = (tmp_path / "scored.jsonl").read_text(encoding="utf-8")
    done = {line["id"]: line for line in map(json.loads, text.splitlines())}
    print(f"{len(heard.words)} sent, {len(heard.answers)} answered, {len(done)} done")
    assert len(done) == text.count("\n"), "scored twice"
    for identity, answers in heard.answers.items():
        expected = {"id": identity, "words": heard.words[identity]}
        assert all(answer == expected for answer in answers), "the answer of another request"
        assert done[identity] == expected, "answered and lost"
    assert heard.duplicates
    # It was shutting down, or the model had failed three times.
    assert heard.statuses <= {502, 503}
