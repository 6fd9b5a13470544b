"""Rows, messages and files that cannot be read, at seeded places among good ones: the good ones are
all processed, in order, and the others end no process."""

from __future__ import annotations

import asyncio
import random
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from string import ascii_letters
from typing import Any

from orjson import OPT_APPEND_NEWLINE, dumps, loads

from penstock.streams.nats.client.connection import connect, jetstream
from penstock.streams.nats.client.server import Servers
from tests.helpers.system.fleet import ENVIRONMENT, PATIENCE, PIPELINE, Fleet
from tests.helpers.system.poller import Orders
from tests.helpers.system.pollers import Pollers

# No test waits for a lease here: a slow machine loses none by itself.
LEASE = 30.0

# Payloads of a row for a client that has good rows too, and for one whose name cannot be read.
BAD_ROWS = [
    '{"client": "client 7", "seq": 0, "text": "\\ud800"}',
    '{"client": "\\ud83d", "seq": 0}',
    '{"client": "half \\udc00 a pair", "seq": 0}',
]
# PostgreSQL cannot read any field of these.
BAD_IN_POSTGRES = [
    '{"client": "client 8", "seq": 0, "text": "a\\u0000b"}',
    '{"client": "a\\u0000b", "seq": 0}',
]


def test_rows_that_cannot_be_read_fail_for_good_and_hold_up_no_reader_and_no_client(
    database: str, tmp_path: Path, run_seed: int
) -> None:
    chance = random.Random(run_seed)
    kinds = BAD_ROWS + (BAD_IN_POSTGRES if database.startswith("postgresql") else [])
    kinds = kinds * 2 + chance.choices(kinds, k=chance.randint(0, 20))
    places = chance.sample(range(300), len(kinds))
    # Too long for an index of PostgreSQL, and hardly compressible.
    long = ["".join(chance.choices(ascii_letters, k=20_000)) for _ in range(2)]
    orders = Orders(database, results=bool(run_seed % 2), lease=LEASE, seconds=0.01)
    bad = dict(zip(places, kinds, strict=True))
    with Pollers(orders, tmp_path, clients=10, events=30, bad=bad, names=long) as pollers:
        readers = pollers.start_two()
        pollers.check(repeats=False)
        dead = pollers.dead()
        assert len(dead) == len(bad)
        for row in dead:
            assert row.error is not None
            assert row.error.startswith("BadRow")
        assert pollers.reap() == 0, [pollers.said(name) for name in readers]
        assert sum(pollers.drained(name)["bad_rows"] for name in readers) == len(bad)


# A worker "a" cannot do them, every other one can.
POISON_FOR_A = PIPELINE.replace('event.get("poison")', 'sys.argv[2] == "a" and "poison" in event')


def test_all_dead_letters_are_listed_and_tried_again_whatever_lies_among_them(
    server: Servers, tmp_path: Path, run_seed: int
) -> None:
    chance = random.Random(run_seed)
    name = f"among-{run_seed}"
    with Fleet(server.urls, tmp_path, name, pipeline=POISON_FOR_A, lease=LEASE) as fleet:
        events = [fleet.event(f"client {n % 20}") for n in range(200)]
        poison = chance.sample(events, 12)
        for event in poison:
            event["poison"] = True
        failing = {(event["client"], event["seq"]) for event in poison}
        # The number of real letters before each foreign one.
        places = [0, *sorted(chance.choices(range(len(poison) + 1), k=8))]

        async def put_among_them() -> None:
            client = await connect(fleet.urls)
            js = jetstream(client)
            for place in places:
                whole = dumps((await fleet.letters(place))[-1].as_dict()) if place else b"{"
                half = whole[: chance.randrange(len(whole))]
                almost = b'{"value": {"client": "client 1", "seq": 1}, "error": "E"}'
                odd = [b"", b"7", b"[]", b"{}", b"null", b"hello", b"\xff\xfe", almost, half]
                body = chance.choice([*odd, chance.randbytes(chance.randrange(1, 5_000))])
                await js.publish(fleet.layout.letters_subject, body)
            await client.close()

        def letters(action: str, foreign: int = len(places)) -> tuple[str, str]:
            done = subprocess.run(
                [
                    *(sys.executable, "-m", "penstock", "dead-letters", action),
                    *("--on", ",".join(fleet.urls), "--name", name),
                ],
                env=ENVIRONMENT,
                capture_output=True,
                text=True,
                timeout=PATIENCE,
            )
            assert done.returncode == 0, done.stderr
            assert done.stderr.count("is not a dead letter") == foreign
            assert "Traceback" not in done.stderr
            return done.stdout, done.stderr

        async def story() -> None:
            await fleet.prepare()
            assert letters("list", 0)[0] == ""
            fleet.start("a")
            publisher = fleet.start_publisher(events)
            await put_among_them()
            await fleet.until_all_arrived(but=frozenset(failing))
            await fleet.letters(len(poison))
            assert publisher.wait() == 0
            fleet.drain("a")
            await fleet.until(lambda: fleet.workers["a"].poll() is not None)
            verdict = fleet.verdict(given_up=failing)
            assert (verdict.lost, verdict.misordered, verdict.overlaps) == (failing, [], [])

            listed = [loads(line)["value"] for line in letters("list")[0].splitlines()]
            assert {(one["client"], one["seq"]) for one in listed} == failing
            assert len(listed) == len(failing)
            assert f"{len(failing)} events published again" in letters("replay")[1]
            fleet.start("b")
            await fleet.until_all_arrived()
            assert letters("list")[0] == ""

        asyncio.run(story())
        assert fleet.verdict().repeated == 0


def odd_identities(chance: random.Random) -> list[Any]:
    """Identities that are neither numbers that JSON keeps nor texts, no two of them equal."""
    made: list[Any] = [None, True, False, {}, [], 0.5, (1 << 63) + 5, (1 << 64) - 1]
    made += [[n, "a"] for n in range(10)] + [{"n": n} for n in range(10)]
    return chance.sample(made, len(made))


def test_no_event_of_a_batch_is_lost_without_a_word_whatever_its_identity_is(
    server: Servers, tmp_path: Path, run_seed: int
) -> None:
    chance = random.Random(run_seed)
    name = f"odd-{run_seed}"
    with Fleet(server.urls, tmp_path, name, batch=16, partitions=4, lease=LEASE) as fleet:
        events = [fleet.event(f"client {n % 20}") for n in range(400)]
        identities = odd_identities(chance)
        for event, identity in zip(chance.sample(events, len(identities)), identities, strict=True):
            event["id"] = identity
        # Messages of another program, whose batches have any content.
        batches: list[bytes] = []
        odd = [identity for identity in identities if type(identity) is not int]
        for n in range(8):
            inside = [fleet.event(f"other {n}") for _ in range(chance.randint(1, 4))]
            said = [f"other {n}/{place}" for place in range(len(inside))]
            wrong: list[Any] = [*said]
            wrong[chance.randrange(len(wrong))] = chance.choice(odd)
            says = chance.choice([wrong, wrong, said * 2, {"ids": said}, "half", None])
            batches.append(b"\n".join([dumps(says), *map(dumps, inside)]))

        async def put_by_another_program() -> None:
            client = await connect(fleet.urls)
            js = jetstream(client)
            for batch in batches:
                await asyncio.sleep(chance.uniform(0, 0.2))
                header = {"Penstock-Events": str(batch.count(b"\n"))}
                subject = fleet.layout.batches(chance.randrange(4))
                await js.publish(subject, batch, headers=header)
            await client.close()

        async def story() -> frozenset[tuple[str, int]]:
            await fleet.prepare()
            fleet.start("a", "b")
            publisher = fleet.start_publisher(events)
            await put_by_another_program()
            letters = await fleet.letters(len(batches))
            # As they were written, each in one letter.
            assert sorted(letter.event() for letter in letters) == sorted(batches)
            told = frozenset(
                (event["client"], event["seq"])
                for letter in letters
                for event in map(loads, letter.event().split(b"\n")[1:])
            )
            await fleet.until_all_arrived(but=told)
            assert publisher.wait() == 0
            assert [one.poll() for one in fleet.workers.values()] == [None, None]
            return told

        told = asyncio.run(story())
        verdict = fleet.verdict(given_up=told)
        assert verdict.lost == told
        assert (verdict.misordered, verdict.overlaps, verdict.repeated) == ([], [], 0)


BAD_FLOORS = [
    *(b"garbage", b"", b"[]", b"{}", b"7", b"\xff", b'{"floor": 3'),
    b'{"floor": "3", "stored": 0, "of": "today", "owner": "x"}',
    b'{"floor": null, "stored": 0, "of": "today"}',
    b'{"floor": 1e99, "stored": [], "of": 5}',
]


def test_a_partition_whose_floor_cannot_be_read_goes_on(
    server: Servers, tmp_path: Path, run_seed: int
) -> None:
    chance = random.Random(run_seed)
    name = f"floors-{run_seed}"
    batch = chance.choice([None, 16])
    with Fleet(server.urls, tmp_path, name, partitions=6, batch=batch, lease=LEASE) as fleet:
        spoilt = chance.sample(range(6), chance.randint(1, 6))

        async def spoil() -> None:
            client = await connect(fleet.urls)
            table = await jetstream(client).key_value(f"penstock_floors-{name}")
            for partition in spoilt:
                await table.put(f"p.{partition}", chance.choice(BAD_FLOORS))
            await client.close()

        async def story() -> None:
            await fleet.prepare()
            fleet.start("a")
            await fleet.publish(20, 1000.0, 0.2)
            await fleet.until_all_arrived()
            fleet.drain("a")
            await fleet.until(lambda: fleet.workers["a"].poll() is not None)
            await spoil()
            fleet.start("b", "c")
            await fleet.publish(20, 1000.0, 0.2)
            await fleet.until_all_arrived()
            assert [fleet.workers[one].poll() for one in "bc"] == [None, None]

        asyncio.run(story())
        verdict = fleet.verdict()
        assert (verdict.misordered, verdict.overlaps) == ([], [])
        said = fleet.errors("b") + fleet.errors("c")
        assert re.search(r"the floor of partition \d is not used", said)


APPENDING = """
import sys
from penstock import adaptive_flat_map, dead_letters, read_jsonl, route, write_jsonl

source, results, letters = sys.argv[1:]


async def handler(event):
    if event["fails"]:
        raise ValueError("it fails")
    return event


pipeline = (
    read_jsonl(source)
    .pipe(adaptive_flat_map(handler, on_error=route(dead_letters(letters))))
    .to(write_jsonl(results, append=True))
)
"""


def test_a_line_that_a_full_disk_cut_off_spoils_nothing_that_is_appended(
    tmp_path: Path, run_seed: int
) -> None:
    chance = random.Random(run_seed)
    pipeline, source = tmp_path / "appending.py", tmp_path / "in.jsonl"
    results, letters = tmp_path / "results", tmp_path / "letters"
    pipeline.write_text(APPENDING, encoding="utf-8")
    before = {results: b"", letters: b""}
    for _ in range(4):
        events = [
            {"id": chance.random(), "fails": chance.random() < 0.3, "text": "x" * length}
            for length in chance.choices(range(500), k=40)
        ]
        source.write_bytes(b"".join(dumps(one, option=OPT_APPEND_NEWLINE) for one in events))
        subprocess.run(
            [
                *(sys.executable, "-m", "penstock", "run", str(pipeline), "--report", "none"),
                *("--", str(source), str(results), str(letters)),
            ],
            env=ENVIRONMENT,
            timeout=PATIENCE,
            check=False,
        )
        failed = [event for event in events if event["fails"]]
        done = [event for event in events if not event["fails"]]
        assert in_any_order(appended(results, before[results])) == in_any_order(done)
        told = [letter["value"] for letter in appended(letters, before[letters])]
        assert in_any_order(told) == in_any_order(failed)
        for file in before:
            whole = file.read_bytes()
            # Anywhere in its last lines, also at the end of one.
            before[file] = whole[: len(whole) - chance.randrange(min(len(whole), 600))]
            file.write_bytes(before[file])


def appended(file: Path, before: bytes) -> list[Any]:
    """The values of the lines appended to the old whole ones, which are unchanged."""
    whole, last = before[: before.rfind(b"\n") + 1], before[before.rfind(b"\n") + 1 :]
    # Only its newline is missing: it stays, and gets one.
    before = before + b"\n" if last.endswith(b"}") and is_json(last) else whole
    now = file.read_bytes()
    assert now.startswith(before)
    assert now[len(before) - 1 : len(before) + 1] != b"\n\n"
    return [loads(line) for line in now[len(before) :].splitlines()]


def is_json(line: bytes) -> bool:
    try:
        loads(line)
    except ValueError:
        return False
    return True


def in_any_order(events: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(events, key=lambda event: event["id"])
