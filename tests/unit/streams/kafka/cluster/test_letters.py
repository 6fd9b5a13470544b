from __future__ import annotations

from typing import Any

import pytest
from orjson import dumps

from penstock import Pipeline, adaptive_flat_map, collect, from_iterable, route
from penstock.command.cluster.kafka import engine_of
from penstock.sources.jsonl import read_jsonl
from penstock.streams.base.errors import EventOmitted
from penstock.streams.kafka.cluster.layout import Layout
from penstock.streams.kafka.cluster.letters import KafkaLetters, Replay, StoredLetter, letters_of
from tests.helpers.kafka.mock import Cluster, until

# This cluster waits three seconds for more members.
MEMBER = {"session.timeout.ms": 4_000, "heartbeat.interval.ms": 300}


@pytest.fixture
def layout(kafka: Cluster) -> Layout:
    topic = kafka.topic()
    kafka.make(f"{topic}.dead-letters")
    return Layout(kafka.servers, topic, f"of {topic}", MEMBER)


def letters(layout: Layout) -> list[StoredLetter]:
    return list(letters_of(layout, 10))


async def worked(layout: Layout, pipeline: Pipeline, count: int, attempts: int = 2) -> None:
    """Run a member until so many letters are there."""
    running = pipeline.start(engine=engine_of(layout, attempts))
    await until(lambda: running.statistics()["failed"] == count)
    await running.drain(10)


def refuse(value: Any) -> Any:
    if value["n"] < 0:
        raise ValueError("below 0")
    return value


def strict(into: list[Any]) -> Pipeline:
    # Its own source is replaced.
    return read_jsonl("nowhere.jsonl").pipe(adaptive_flat_map(refuse)).to(collect(into))


async def test_what_fails_or_cannot_be_read_is_kept_with_its_key_and_headers_and_sent_again(
    kafka: Cluster, layout: Layout
) -> None:
    seen: list[Any] = []
    kafka.write(layout.topic, [b'{"n": -1}'], partition=2, key=b"\xffk", headers=[("a", b"1")])
    kafka.write(layout.topic, [b"no \xff JSON", b'{"n": 1}'], partition=1)
    await worked(layout, strict(seen), 2)
    assert seen == [{"n": 1}]
    found = {stored.letter.error: stored for stored in letters(layout)}
    assert set(found) == {"ValueError", "BadLine"}
    failed = found["ValueError"]
    assert (failed.letter.value, failed.letter.attempts) == ({"n": -1}, 2)
    assert failed.letter.origin == f"record 0 of {layout.topic}, partition 2"
    assert (failed.key, failed.headers) == (b"\xffk", [("a", b"1")])
    assert found["BadLine"].letter.value == "no \\xff JSON"

    replay = Replay(layout)
    for stored in found.values():
        replay.send(stored)
    assert letters(layout) == []
    there = [(one.value(), one.key(), one.headers()) for one in kafka.read(layout.topic)]
    assert there.count((b"no \xff JSON", None, None)) == 2
    assert there.count((b'{"n":-1}', b"\xffk", [("a", b"1")])) == 1


async def test_an_event_that_fails_again_after_a_takeover_is_one_letter(
    layout: Layout,
) -> None:
    found: list[StoredLetter] = []
    for _ in range(2):
        failing = adaptive_flat_map(refuse, on_error=route(KafkaLetters(layout)))
        await from_iterable([{"n": -1}]).pipe(failing).to(collect([])).run()
        found += letters(layout)
    first, second = found
    assert first.letter.sequence < second.letter.sequence
    assert first.letter.value == second.letter.value == {"n": -1}


def stored_letter(kafka: Cluster, layout: Layout, key: bytes, group: bytes, **more: Any) -> None:
    fields = {"error": "E", "message": "", "stage": "", "attempts": 1, "key": "", "origin": "o"}
    kafka.write(
        layout.letters,
        [dumps({"value": {"n": 1}, **fields, **more})],
        partition=3,
        key=key,
        headers=[("penstock.group", group)],
    )


def test_letters_of_other_groups_are_not_of_this_one_and_what_is_not_a_letter_is_reported(
    kafka: Cluster, layout: Layout
) -> None:
    own = layout.group.encode()
    stored_letter(kafka, layout, b"1", own)
    stored_letter(kafka, layout, b"2", b"other")
    kafka.write(layout.letters, [b"hello"], partition=3, key=b"3")
    said: list[str] = []
    found = [stored.letter.sequence for stored in letters_of(layout, 10, said.append)]
    # Numbers are different in all four partitions.
    assert found == [3]
    assert said == [
        f"record 11 of '{layout.letters}' is not a dead letter: 'hello' "
        "(unexpected character, expected a JSON value: line 1 column 1 (char 0))"
    ]
    anybody = Layout(layout.servers, layout.topic, "")
    assert [stored.letter.sequence for stored in letters_of(anybody, 10)] == [3, 7]


async def test_a_letter_that_would_be_too_large_has_the_beginning_of_its_event(
    kafka: Cluster, layout: Layout
) -> None:
    kafka.write(layout.topic, [b'{"n": -1, "text": "%s"}' % (b"x" * 950_000)])
    await worked(layout, strict([]), 1)
    (stored,) = letters(layout)
    assert stored.letter.omitted is not None
    with pytest.raises(EventOmitted, match=f"came from record 0 of {layout.topic}"):
        Replay(layout).send(stored)
    assert [one.letter for one in letters(layout)] == [stored.letter]
