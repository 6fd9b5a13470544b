from __future__ import annotations

import json
from pathlib import Path

from tests.helpers.kafka.mock import Cluster
from tests.helpers.servers.command import Penstock, Worker, event, eventually, lines


def test_what_is_published_is_worked_on_and_its_dead_letters_are_tried_again(
    penstock: Penstock, kafka: Cluster, tmp_path: Path
) -> None:
    topic = kafka.topic()
    kafka.make(f"{topic}.dead-letters")
    on = ("--on", f"kafka://{kafka.servers}/{topic}")
    given = lines(*(event(n, f"key {n % 7}", n) for n in range(70)), event(70, "bad", -1))
    fed = penstock("publish", "pipe.py", *on, given=given)
    assert fed.returncode == 0, fed.stderr
    assert "stored: 71" in fed.stderr
    # The records of a key are in one partition, in order.
    places: dict[str, set[int]] = {}
    order: dict[str, list[int]] = {}
    for record in kafka.read(topic):
        value = json.loads(record.value())
        assert record.key() == value["key"].encode()
        places.setdefault(value["key"], set()).add(record.partition())
        order.setdefault(value["key"], []).append(value["id"])
    assert {len(one) for one in places.values()} == {1}
    assert all(ids == sorted(ids) for ids in order.values())
    assert len({number for one in places.values() for number in one}) > 1

    with Worker(tmp_path, *on, "--worker", "first", "--lease", "4", "--attempts", "2") as worker:
        eventually(lambda: penstock("dead-letters", "list", *on).stdout.count("\n") == 1)
        (letter,) = map(json.loads, penstock("dead-letters", "list", *on).stdout.splitlines())
        assert (letter["value"]["id"], letter["error"], letter["attempts"]) == (70, "ValueError", 2)
        again = penstock("dead-letters", "replay", "--id", str(letter["sequence"]), *on)
        assert "1 event published again" in again.stderr
        # It fails again, and so is a new letter.
        eventually(lambda: penstock("dead-letters", "list", *on).stdout.count("\n") == 1)
        status, output, errors = worker.drain()
    assert "worker first of 'pipe' on topic" in errors
    assert "Traceback" not in errors
    assert status == 3
    done = [json.loads(line) for line in output.splitlines()]
    for key in range(7):
        mine = [one["n"] for one in done if one["key"] == f"key {key}"]
        assert mine == [2 * n for n in range(key, 70, 7)]
    assert penstock("dead-letters", "list", "--id", "999", *on).returncode == 1
