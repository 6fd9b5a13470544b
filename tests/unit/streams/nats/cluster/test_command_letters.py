from __future__ import annotations

import asyncio
import json
from pathlib import Path

from orjson import dumps

from penstock.streams.nats.client.connection import connect, jetstream
from penstock.streams.nats.client.server import Servers
from penstock.streams.nats.cluster.layout import token
from tests.helpers.servers.command import Penstock, Worker, event, eventually, lines


def test_dead_letters_are_listed_and_tried_again(
    penstock: Penstock, server: Servers, tmp_path: Path
) -> None:
    on = ("--on", server.urls[0], "--name", "letters")
    given = lines(event(1, "a", -1), event(2, "b", -2), event(3, "b", 3))
    assert penstock("publish", "pipe.py", "--partitions", "2", *on, given=given).returncode == 0
    with Worker(tmp_path, *on, "--lease", "2") as worker:
        eventually(lambda: ", 2 dead letters" in penstock("status", *on).stdout)

        listed = penstock("dead-letters", "list", *on)
        letters = [json.loads(line) for line in listed.stdout.splitlines()]
        assert [letter["value"]["id"] for letter in letters] == [1, 2]
        assert {(one["error"], one["message"], one["attempts"]) for one in letters} == {
            ("ValueError", "below 0", 3)
        }
        assert all("adaptive_flat_map" in letter["stage"] for letter in letters)

        again = penstock("dead-letters", "replay", *on, "--id", str(letters[0]["sequence"]))
        assert "1 event published again" in again.stderr
        # It fails again, and so is a new letter, behind the one that was left.
        eventually(lambda: ", 2 dead letters" in penstock("status", *on).stdout)
        letters = [
            json.loads(line) for line in penstock("dead-letters", "list", *on).stdout.splitlines()
        ]
        assert [letter["value"]["id"] for letter in letters] == [2, 1]
        status, output, _ = worker.drain()
    assert status == 3
    assert json.loads(output) == event(3, "b", 6)
    assert penstock("dead-letters", "list", "--id", "99", *on).returncode == 1


def test_dead_letters_are_read_where_there_are_none_and_beside_what_is_not_one(
    penstock: Penstock, server: Servers
) -> None:
    on = ("--on", server.urls[0], "--name", "strangers")
    assert penstock("publish", "pipe.py", "--partitions", "2", *on).returncode == 0
    for action in ("list", "replay"):
        none = penstock("dead-letters", action, *on)
        assert (none.returncode, none.stdout) == (0, "")

    async def put() -> None:
        client = await connect(server.urls)
        fields = {"error": "E", "message": "", "stage": "", "attempts": 1, "key": "", "origin": ""}
        for body in (b"hello", dumps({"value": {"id": 1}, **fields}), b"\xff"):
            await jetstream(client).publish("penstock.strangers.dead", body)
        await client.close()

    asyncio.run(put())
    listed = penstock("dead-letters", "list", *on)
    assert [json.loads(line)["value"] for line in listed.stdout.splitlines()] == [{"id": 1}]
    assert "message 1 of 'penstock-strangers-dead' is not a dead letter: 'hello'" in listed.stderr
    assert "message 3 of 'penstock-strangers-dead' is not a dead letter" in listed.stderr
    assert listed.returncode == 0
    again = penstock("dead-letters", "replay", *on)
    assert (again.returncode, "1 event published again" in again.stderr) == (0, True)


def test_what_is_not_json_goes_to_the_dead_letters_as_text(
    penstock: Penstock, server: Servers, tmp_path: Path
) -> None:
    on = ("--on", server.urls[0], "--name", "bad")
    assert penstock("publish", "pipe.py", "--partitions", "1", *on).returncode == 0

    async def publish() -> None:
        client = await connect(server.urls)
        await jetstream(client).publish(f"penstock.bad.in.{token('a')}", b"{no JSON")
        await client.close()

    asyncio.run(publish())
    with Worker(tmp_path, *on, "--lease", "2") as worker:
        eventually(lambda: ", 1 dead letter" in penstock("status", *on).stdout)
        _, _, errors = worker.drain()
    assert "is not valid JSON" in errors
    (letter,) = map(json.loads, penstock("dead-letters", "list", *on).stdout.splitlines())
    assert (letter["value"], letter["error"]) == ("{no JSON", "BadLine")
