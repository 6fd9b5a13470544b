"""Data that version 0.1.0 left on a NATS server: see `tests.contract.stored.generate`.

Each test gives the server the streams and buckets of one name, and goes on with them.
"""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from penstock import WorkPool, collect, read_jetstream
from penstock.streams.nats.client.server import Servers
from tests.contract.stored.generate import PIPELINE
from tests.contract.stored.recording import play
from tests.helpers.servers.command import Penstock, Worker, command_in, eventually

RECORDED: dict[str, Any] = json.loads(
    (Path(__file__).parent / "first" / "nats.json").read_text(encoding="utf-8")
)


@pytest.fixture
def penstock(tmp_path: Path) -> Penstock:
    """The command, with the pipeline of that version, whose handler no longer hangs."""
    return command_in(tmp_path, PIPELINE.replace('event.get("slow")', "False"))


@pytest.fixture
def fresh(tmp_path: Path) -> Any:
    """A server for this test alone: a name may be played once."""
    with Servers(tmp_path / "nats") as servers:
        yield servers


def put(server: Servers, name: str) -> tuple[str, ...]:
    """Play all that a pipeline of that name has; return its arguments for a command."""
    of_it = (name, f"{name}-dead", f"KV_{name}", f"KV_penstock_floors-{name[9:]}")
    url = server.urls[0]
    asyncio.run(play(url, RECORDED, *(one for one in of_it if one in RECORDED)))
    return ("--on", url, "--name", name.removeprefix("penstock-"))


def ids_by_key(output: str) -> dict[str, list[int]]:
    ids: dict[str, list[int]] = {}
    for line in output.splitlines():
        event = json.loads(line)
        ids.setdefault(event["key"], []).append(event["id"])
    return ids


def finished_by_a_worker(
    tmp_path: Path, penstock: Penstock, on: tuple[str, ...]
) -> dict[str, list[int]]:
    """The output of one worker for all that is left."""
    with Worker(tmp_path, *on, "--lease", "2") as worker:
        eventually(
            lambda: re.search(r": 0 \w+ unfinished", penstock("status", *on).stdout) is not None
        )
        _, output, errors = worker.drain()
    assert "cannot be read" not in errors
    return ids_by_key(output)


def test_partitions_whose_workers_were_killed_are_gone_on_with_where_they_were(
    penstock: Penstock, fresh: Servers, tmp_path: Path
) -> None:
    on = put(fresh, "penstock-plain")
    before = penstock("status", *on).stdout
    assert before.startswith("plain: 6 events unfinished, 20 kept, 2 dead letters")
    # Event 11 had crashed three workers, but notes have another form now: it begins again.
    assert finished_by_a_worker(tmp_path, penstock, on) == {
        "b": [11, 16],
        "c": [12, 17],
        "e": [19],
    }
    letters = [
        json.loads(line) for line in penstock("dead-letters", "list", *on).stdout.splitlines()
    ]
    assert [(letter["value"]["id"], letter["error"]) for letter in letters] == [
        (7, "ValueError"),
        (14, "ValueError"),
        # Letters have other ids now, so one that fails again is there twice.
        (14, "ValueError"),
    ]


def test_messages_of_several_events_are_unpacked_and_their_duplicates_are_known(
    penstock: Penstock, fresh: Servers, tmp_path: Path
) -> None:
    on = put(fresh, "penstock-packed")
    before = penstock("status", *on).stdout
    assert before.startswith("packed: 4 messages unfinished, 6 kept, 2 dead letters")
    # Event 9 was finished, but not its message.
    assert finished_by_a_worker(tmp_path, penstock, on) == {
        "a": [15, 20],
        "b": [11, 16],
        "c": [12, 17],
        "d": [13, 18],
        "e": [9, 19],
    }
    # As above.
    assert ", 4 dead letters" in penstock("status", *on).stdout


def test_a_drained_pipeline_takes_up_what_came_later(
    penstock: Penstock, fresh: Servers, tmp_path: Path
) -> None:
    on = put(fresh, "penstock-drained")
    assert finished_by_a_worker(tmp_path, penstock, on) == {
        "a": [15],
        "b": [11],
        "c": [12],
        "d": [13],
    }
    letters = [
        json.loads(line) for line in penstock("dead-letters", "list", *on).stdout.splitlines()
    ]
    assert [letter["value"]["id"] for letter in letters] == [7, 14]


def test_new_events_join_the_old_stream_and_the_ones_it_has_are_known(
    penstock: Penstock, fresh: Servers
) -> None:
    on = put(fresh, "penstock-drained")
    known = '{"id":15,"key":"a","n":15,"slow":false}\n'
    new = '{"id":16,"key":"b","n":16}\n'
    published = penstock("publish", "pipe.py", *on, given=known + new)
    assert "stored: 1, known already: 1" in published.stderr
    assert penstock("status", *on).stdout.startswith("drained: 6 events unfinished, 16 kept")


def test_dead_letters_are_listed_and_published_again(penstock: Penstock, fresh: Servers) -> None:
    on = put(fresh, "penstock-plain")
    listed = penstock("dead-letters", "list", *on).stdout
    letters = [json.loads(line) for line in listed.splitlines()]
    assert [(one["sequence"], one["value"]["id"], one["attempts"]) for one in letters] == [
        (1, 7, 3),
        (2, 14, 3),
    ]
    assert {(one["error"], one["message"], one["stage"]) for one in letters} == {
        ("ValueError", "below 0", "stage 5 'adaptive_flat_map'")
    }
    again = penstock("dead-letters", "replay", *on, "--id", "2")
    assert "1 event published again" in again.stderr
    (left,) = penstock("dead-letters", "list", *on).stdout.splitlines()
    assert json.loads(left)["sequence"] == 1
    assert ": 7 events unfinished, 21 kept, 1 dead letter" in penstock("status", *on).stdout


def test_a_pool_whose_master_was_killed_has_its_letters_and_takes_the_next_epic(
    penstock: Penstock, fresh: Servers
) -> None:
    url = fresh.urls[0]
    names = ("penstock-work-jobs", "penstock-work-jobs-dead", "KV_penstock-work-jobs")
    asyncio.run(play(url, RECORDED, *names))
    listed = penstock("dead-letters", "list", "--on", url, "--pool", "jobs").stdout
    (letter,) = map(json.loads, listed.splitlines())
    assert (letter["value"], letter["message"]) == ({"n": 1}, "ValueError: poison")

    async def double(job: dict[str, int]) -> int:
        return 2 * job["n"]

    async def story() -> list[int]:
        pool = WorkPool(url, "jobs", lease=2)
        worker = pool.work(double).start()
        results: list[int] = []
        epic = pool.offer([{"n": n} for n in range(5)], when_busy="wait", ordered=True)
        await epic.to(collect(results)).run()
        await worker.drain()
        return results

    assert asyncio.run(story()) == [0, 2, 4, 6, 8]


def test_a_durable_reader_goes_on_behind_what_it_has_acknowledged(fresh: Servers) -> None:
    url = fresh.urls[0]

    async def story() -> list[int]:
        await play(url, RECORDED, "orders")
        values: list[dict[str, int]] = []
        source = read_jetstream("orders", "reader", url, follow=False)
        await source.to(collect(values)).run()
        return [value["n"] for value in values]

    assert asyncio.run(story()) == [6, 7, 8, 9]
