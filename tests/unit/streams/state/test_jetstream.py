"""A store in a stream of NATS: what is refused, what is repeated, and what its local copy has."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from math import inf
from pathlib import Path
from typing import Any

import pytest
from orjson import dumps, loads

from penstock import Store, collect, from_iterable, run, stateful
from penstock.streams.base.errors import (
    BuildError,
    CannotOpen,
    DatabaseUnavailable,
    PayloadTooLarge,
    PenstockError,
    ServerTooOld,
    StreamDiffers,
)
from penstock.streams.nats.client.connection import connect
from penstock.streams.nats.client.server import Servers
from penstock.streams.state.backend import KeptStage, Moved, Row, Unit
from penstock.streams.state.jetstream import partition, reading, stream
from penstock.streams.state.jetstream.backend import JetStream
from penstock.streams.state.jetstream.messages import Head
from penstock.streams.state.jetstream.moving import MovingJetStream
from penstock.streams.state.sqlite import SQLite

STAGE = KeptStage("one", "key", 1)


@pytest.fixture
def url(server: Servers, tmp_path: Path) -> str:
    """The place of a store that no run has made."""
    return f"{server.urls[0]}/{tmp_path.name}"


Opened = Callable[..., JetStream]


@pytest.fixture
def opened(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Opened]:
    """Opens backends for runs, which are closed in the end. A second one takes the first for one
    that does not answer."""
    monkeypatch.setattr(stream, "_OTHER", 0.0)
    backends: list[JetStream] = []

    def open_(local: Path | None = None) -> JetStream:
        backend = JetStream(url, None if local is None else str(local))
        backends.append(backend)
        backend.open()
        backend.declare([STAGE])
        return backend

    yield open_
    for backend in backends:
        backend.close()


def row(n: int, state: int = 0) -> Row:
    return Row(b"%d" % n, b"%d" % state, 1, b"", None)


def ask(url: str, what: str, **fields: Any) -> dict[str, Any]:
    """The answer to a request to the API of the server."""

    async def asked() -> dict[str, Any]:
        client = await connect([url.rpartition("/")[0]])
        try:
            reply = await client.request(f"$JS.API.{what}", dumps(fields), timeout=5)
            answer: dict[str, Any] = loads(reply.data)
            return answer
        finally:
            await client.close()

    return asyncio.run(asked())


def sequence(url: str) -> int:
    info = ask(url, f"STREAM.INFO.{url.rpartition('/')[2]}")
    return int(info["state"]["last_seq"])


# What is refused.


@pytest.mark.parametrize(
    "wrong", ["nats://localhost", "nats://localhost:4222/", "nats://a/b/c d", "nats:///counts"]
)
def test_a_url_without_a_stream_is_refused(wrong: str) -> None:
    with pytest.raises(BuildError, match="nats://"):
        Store(wrong)


def test_a_local_copy_is_for_stores_in_nats_only(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="local="):
        Store(tmp_path / "a.state", local=tmp_path)
    wrong: Any = 7
    with pytest.raises(BuildError, match="local=7"):
        Store("nats://localhost/counts", local=wrong)


@pytest.mark.parametrize("version", ["2.10.29", "2.11.4"])
def test_a_server_without_atomic_batches_is_refused_by_its_version(version: str) -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        greeting = f'INFO {{"server_id":"a","version":"{version}","client_id":1,"max_payload":9}}'
        writer.write(greeting.encode() + b"\r\n")
        while line := await reader.readline():
            if line.startswith(b"PING"):
                writer.write(b"PONG\r\n")
        writer.close()

    async def story() -> None:
        server = await asyncio.start_server(greet, "127.0.0.1", 0)
        backend = JetStream(f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}/counts")
        try:
            named = rf"of version {version[:4]}: a store needs atomic batches.* 2\.12"
            with pytest.raises(ServerTooOld, match=named):
                await asyncio.to_thread(backend.open)
        finally:
            await asyncio.to_thread(backend.close)
            server.close()
            await server.wait_closed()

    asyncio.run(story())


def test_a_stream_that_no_store_has_made_is_refused(url: str, opened: Opened) -> None:
    name = url.rpartition("/")[2]
    ask(url, f"STREAM.CREATE.{name}", name=name, subjects=[f"{name}.>"])
    with pytest.raises(StreamDiffers, match="which no store has made"):
        opened()


def test_a_stream_whose_subjects_another_one_has_is_refused(url: str, opened: Opened) -> None:
    name = url.rpartition("/")[2]
    ask(url, f"STREAM.CREATE.other-{name}", name=f"other-{name}", subjects=[f"{name}.head.*"])
    with pytest.raises(StreamDiffers, match=r"overlap.*another name"):
        opened()


def test_a_stream_that_was_changed_is_refused(url: str, opened: Opened) -> None:
    opened().close()
    name = url.rpartition("/")[2]
    config = ask(url, f"STREAM.INFO.{name}")["config"]
    ask(url, f"STREAM.UPDATE.{name}", **{**config, "max_msgs_per_subject": 5})
    with pytest.raises(StreamDiffers, match="max_msgs_per_subject"):
        opened()


def test_a_store_that_is_not_there_is_not_made_to_be_read(url: str) -> None:
    backend = JetStream(url)
    with pytest.raises(CannotOpen, match="no run has made it yet"):
        backend.open_to_read()
    backend.close()
    assert "error" in ask(url, f"STREAM.INFO.{url.rpartition('/')[2]}")


def test_a_newer_format_is_refused(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    opened().close()
    monkeypatch.setattr("penstock.streams.state.jetstream.partition.FORMAT", 2)
    with pytest.raises(CannotOpen, match="has the format 1"):
        opened()


def test_a_state_that_is_too_large_is_named_with_its_key_and_nothing_is_written(
    opened: Opened,
) -> None:
    backend = opened()
    large = Row(b'"ann"', b'"' + b"x" * 1_100_000 + b'"', 1, b"", None)
    with pytest.raises(PayloadTooLarge, match=r'"ann" of the stage .*max_payload'):
        backend.commit(Unit(rows={"one": [row(1), large]}))
    assert list(backend.scan("one")) == []
    backend.commit(Unit(rows={"one": [row(2)]}))
    assert list(backend.scan("one")) == [row(2)]


def test_an_event_that_changes_more_keys_than_one_fact_has_is_named(url: str) -> None:
    store = Store(url)

    def step(state: Any, event: Any) -> tuple[Any, list[Any]]:
        return event, []

    events: list[list[Any]] = [["many", *range(1_200)]]

    pipeline = (
        from_iterable(events)
        .flat_map(lambda event: event)
        .pipe(stateful(step, by=lambda key: key, store=store))
        .to(collect([]))
    )
    with pytest.raises(PenstockError, match=r"keys as one fact.*'many', 0, 1.* changed.* 1,201"):
        run(pipeline)


# Runs that follow each other.


def test_a_second_run_is_refused_while_one_uses_the_store(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = opened()
    monkeypatch.setattr(stream, "_OTHER", 1.0)
    with pytest.raises(CannotOpen, match=rf"Another run uses the store .*process {os.getpid()} of"):
        opened()
    first.commit(Unit(rows={"one": [row(1)]}))
    first.close()
    assert list(opened().scan("one")) == [row(1)]


def test_a_run_that_another_one_has_followed_writes_nothing_more(opened: Opened) -> None:
    first = opened()
    first.commit(Unit(rows={"one": [row(1)]}))
    second = opened()
    with pytest.raises(CannotOpen, match="Another run has opened the store"):
        first.commit(Unit(rows={"one": [row(1, 7), row(2, 7)]}, marks={"p": b"7"}))
    assert list(second.scan("one")) == [row(1)]
    second.commit(Unit(rows={"one": [row(2, 3)]}))
    assert list(opened().scan("one")) == [row(1), row(2, 3)]


def test_a_commit_whose_answer_is_lost_is_written_once(
    opened: Opened, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend, sent = opened(), stream.batch
    asked = 0

    async def deaf(*arguments: Any) -> dict[str, Any]:
        nonlocal asked
        asked += 1
        answer = await sent(*arguments)
        if asked % 2:
            raise TimeoutError
        return answer

    monkeypatch.setattr(stream, "batch", deaf)
    before = sequence(url)
    for n in range(3):
        backend.commit(Unit(rows={"one": [row(n)]}, marks={"p": b"%d" % n}))
    assert asked == 6
    # A row, a mark and the head each time: what was sent again was refused.
    assert sequence(url) == before + 9
    assert backend.mark("p") == b"2"
    assert len(list(opened().scan("one"))) == 3


def test_a_batch_that_was_sent_in_part_is_sent_again(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend, sent = opened(), stream.batch
    is_cut = True

    async def cut(client: Any, messages: list[Any]) -> dict[str, Any]:
        nonlocal is_cut
        if not is_cut:
            return await sent(client, messages)
        is_cut = False
        lost = client.publish

        async def publish(subject: str, body: bytes, **options: Any) -> None:
            if options["headers"]["Nats-Batch-Sequence"] != "2":
                await lost(subject, body, **options)

        monkeypatch.setattr(client, "publish", publish)
        try:
            return await sent(client, messages)
        finally:
            monkeypatch.setattr(client, "publish", lost)

    monkeypatch.setattr(stream, "batch", cut)
    backend.commit(Unit(rows={"one": [row(n) for n in range(5)]}))
    assert len(list(opened().scan("one"))) == 5


def test_a_stream_that_has_lost_commits_is_not_written_any_more(opened: Opened, url: str) -> None:
    backend = opened()
    backend.commit(Unit(rows={"one": [row(1)]}))
    ask(url, f"STREAM.PURGE.{url.rpartition('/')[2]}")
    with pytest.raises(CannotOpen, match=r"has lost what it had.*start the pipeline again"):
        backend.commit(Unit(rows={"one": [row(2)]}))


def test_a_run_waits_for_a_server_that_is_away(tmp_path: Path) -> None:
    with Servers(tmp_path / "servers") as servers:
        backend = JetStream(f"{servers.urls[0]}/counts", str(tmp_path / "local"))
        backend.open()
        backend.declare([STAGE])
        backend.commit(Unit(rows={"one": [row(1)]}))
        servers.stop(0, signal.SIGKILL)
        servers.start(0)
        backend.commit(Unit(rows={"one": [row(2)]}))
        assert list(backend.scan("one")) == [row(1), row(2)]
        backend.close()


def test_a_server_that_stays_away_is_named_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "_PATIENCE", 0.2)
    with Servers(tmp_path / "servers") as servers:
        backend = JetStream(f"{servers.urls[0]}/counts")
        backend.open()
        servers.stop(0, signal.SIGKILL)
        with pytest.raises(DatabaseUnavailable, match=r"counts could not be used.*NATS servers"):
            backend.commit(Unit(marks={"p": b"1"}))
        backend.close()


# The local copy.


def count_reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    reads: list[int] = []
    all_of = reading.stored

    async def counted(client: Any, name: str, subjects: Any, first: int) -> Any:
        read = 0
        async for some in all_of(client, name, subjects, first):
            read += len(some)
            yield some
        reads.append(read)

    monkeypatch.setattr(partition, "stored", counted)
    return reads


def test_a_copy_is_continued_and_a_run_without_one_reads_all(
    opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = count_reads(monkeypatch)
    first = opened(tmp_path / "a")
    first.commit(Unit(rows={"one": [row(n) for n in range(900)]}, marks={"p": b"1"}))
    first.close()
    del reads[:]
    second = opened(tmp_path / "a")
    # The stages, and the head.
    assert reads == [1, 1]
    second.commit(Unit(rows={"one": [row(1, 5)]}, gone={"one": [b"2", b"3"]}))
    second.close()
    del reads[:]
    other = opened(tmp_path / "b")
    assert reads == [1, 902]
    assert other.size("one")[0] == 898
    assert other.read("one", [b"1", b"2"]) == [row(1, 5)]
    other.commit(Unit(rows={"one": [row(2, 8)]}, gone={"one": [b"4"]}))
    other.close()
    del reads[:]
    again = opened(tmp_path / "a")
    assert reads == [1, 3]
    assert again.size("one")[0] == 898
    assert again.read("one", [b"1", b"2", b"4"]) == [row(1, 5), row(2, 8)]


def test_a_copy_of_what_the_stream_has_lost_is_read_anew(
    opened: Opened, tmp_path: Path, url: str
) -> None:
    first = opened(tmp_path / "a")
    first.commit(Unit(rows={"one": [row(1), row(2)]}))
    first.close()
    # As if a power failure had undone it: other commits have its numbers now.
    ask(url, f"STREAM.DELETE.{url.rpartition('/')[2]}")
    other = opened(tmp_path / "b")
    for n in range(9):
        other.commit(Unit(rows={"one": [row(n, 7)]}))
    other.close()
    assert list(opened(tmp_path / "a").scan("one")) == [row(n, 7) for n in range(9)]


def test_a_copy_that_has_more_commits_of_a_run_than_the_stream_is_read_anew() -> None:
    head = Head(1, "c", 0, [["b", 20], ["a", 10]])
    assert head.has("b", 20)
    assert not head.has("b", 21)
    assert not head.has("a", 11)
    assert not head.has("z", 1)
    assert head.followed("d", 30).has("c", 30)
    assert not head.followed("d", 30).has("c", 31)


def test_a_copy_that_is_older_than_servers_know_deletions_is_read_anew(
    opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = opened(tmp_path / "a")
    first.commit(Unit(rows={"one": [row(1), row(2)]}))
    first.close()
    monkeypatch.setattr("penstock.streams.state.jetstream.partition._MARGIN", 7 * 86_400)
    reads = count_reads(monkeypatch)
    assert list(opened(tmp_path / "a").scan("one")) == [row(1), row(2)]
    assert reads == [1, 3]


def test_a_stage_that_is_forgotten_is_so_in_other_copies(opened: Opened, tmp_path: Path) -> None:
    first = opened(tmp_path / "a")
    first.commit(Unit(rows={"one": [row(n) for n in range(5)]}))
    first.close()
    other = opened(tmp_path / "b")
    other.forget("one")
    assert other.stages() == []
    other.declare([STAGE])
    other.commit(Unit(rows={"one": [row(7)]}))
    other.close()
    assert list(opened(tmp_path / "a").scan("one")) == [row(7)]


def test_a_copy_in_use_refuses_another_run_before_it_has_followed_the_first(
    opened: Opened, tmp_path: Path
) -> None:
    first = opened(tmp_path / "a")
    with pytest.raises(CannotOpen, match="another run uses the store"):
        opened(tmp_path / "a")
    first.commit(Unit(rows={"one": [row(1)]}))


def test_without_a_folder_the_copy_is_temporary(
    opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    backend = opened()
    assert len(os.listdir(tmp_path)) == 1
    backend.close()
    assert os.listdir(tmp_path) == []


def test_the_store_is_read_beside_the_run(opened: Opened, url: str) -> None:
    backend = opened()
    backend.commit(Unit(rows={"one": [row(1)]}, marks={"p": b"1"}))
    beside = JetStream(url)
    beside.open_to_read()
    assert list(beside.scan("one")) == [row(1)]
    assert beside.marks() == [("p", b"1")]
    assert beside.stages() == [STAGE]
    beside.close()
    backend.commit(Unit(rows={"one": [row(2)]}))


def test_a_backup_is_a_store_in_a_file(opened: Opened, tmp_path: Path) -> None:
    backend = opened()
    backend.commit(Unit(rows={"one": [row(1)]}, marks={"p": b"1"}))
    backend.backup(str(tmp_path / "b.state"))
    copy = SQLite(str(tmp_path / "b.state"))
    copy.open()
    assert list(copy.scan("one")) == [row(1)]
    assert copy.marks() == [("p", b"1")]
    assert copy.due("one", -inf, inf, 1) == []
    copy.close()


# A pipeline.


def count(n: int, event: dict[str, Any]) -> tuple[int, list[int]]:
    return n + 1, [n + 1]


def test_many_keys_at_once_are_committed_in_parts(url: str) -> None:
    events = [{"key": n % 2_500} for n in range(5_000)]
    for begun in (0, 2):
        found: list[int] = []
        store = Store(url, every=5)
        stage = stateful(count, by="key", start=0, store=store)
        run(from_iterable(events).pipe(stage).to(collect(found)))
        assert found == [begun + 1] * 2_500 + [begun + 2] * 2_500


def test_a_store_on_three_servers_is_kept_by_each(three_servers: Servers, tmp_path: Path) -> None:
    backend = JetStream(f"{','.join(three_servers.urls)}/{tmp_path.name}")
    backend.open()
    backend.declare([STAGE])
    backend.commit(Unit(rows={"one": [row(1)]}))
    backend.close()
    url = f"{three_servers.urls[0]}/{tmp_path.name}"
    assert ask(url, f"STREAM.INFO.{tmp_path.name}")["config"]["num_replicas"] == 3
    beside = JetStream(url)
    beside.open_to_read()
    assert list(beside.scan("one")) == [row(1)]
    beside.close()


def test_partitions_that_wait_for_servers_are_given_up_by_a_close() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        backend = MovingJetStream(f"nats://127.0.0.1:{silent.getsockname()[1]}/states")
        backend.open()
        with ThreadPoolExecutor(3) as threads:
            adopting = [threads.submit(backend.adopt, number, 3) for number in range(3)]
            # Until one of them connects, for which the others wait.
            connected, _ = silent.accept()
            with connected:
                backend.close()
                assert [type(one.exception(60)) for one in adopting] == [Moved] * 3
    assert "penstock store in NATS" not in {thread.name for thread in threading.enumerate()}
