from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.streams.nats.client.server import Servers
from tests.helpers.servers.command import PIPELINE, Penstock, lines


def test_a_server_that_is_not_there_is_named(penstock: Penstock) -> None:
    ran = penstock("status", "--on", "nats://user:secret@127.0.0.1:1")
    assert ran.returncode == 2
    assert "No NATS server answered at nats://***@127.0.0.1:1" in ran.stderr
    assert "secret" not in ran.stderr


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    folder = tmp_path_factory.mktemp("locked")
    settings = "authorization { user: penstock, password: right }\nmax_payload: 1000"
    with Servers(folder, settings=settings) as servers:
        yield servers


def test_a_server_without_jetstream_is_reported(penstock: Penstock, tmp_path: Path) -> None:
    with Servers(tmp_path / "plain", settings="jetstream: false") as servers:
        ran = penstock("publish", "pipe.py", "--on", servers.urls[0])
        assert ran.returncode == 2
        assert "start it with -js" in ran.stderr
        assert "Traceback" not in ran.stderr


def test_wrong_credentials_are_reported(penstock: Penstock, locked: Servers) -> None:
    url = locked.urls[0].replace("nats://", "nats://penstock:wrong@")
    ran = penstock("status", "--on", url)
    assert ran.returncode == 2
    assert "refuses these credentials" in ran.stderr


def test_an_event_that_is_too_large_for_the_server_is_named(
    penstock: Penstock, locked: Servers
) -> None:
    url = locked.urls[0].replace("nats://", "nats://penstock:right@")
    given = lines({"id": 1, "key": "a", "n": 1, "text": "x" * 2000})
    ran = penstock("publish", "pipe.py", "--on", url, "--partitions", "1", given=given)
    assert ran.returncode == 1
    assert "more than the server takes (1,000, max_payload" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_stream_with_other_settings_is_left_alone_and_the_difference_reported(
    penstock: Penstock, server: Servers, tmp_path: Path
) -> None:
    on = ("--on", server.urls[0], "--name", "differs")
    assert penstock("publish", "pipe.py", "--partitions", "4", *on).returncode == 0
    other = PIPELINE.replace('by="id"', 'by="uuid"').replace("within(10", "within(20")
    (tmp_path / "other.py").write_text(other, encoding="utf-8")
    ran = penstock("run", "other.py", "--partitions", "8", "--replicas", "3", *on)
    assert ran.returncode == 2
    assert "partitions is 4 there, 8 here" in ran.stderr
    assert "identity is id there, uuid here" in ran.stderr
    assert "replicas is 1 there, 3 here" in ran.stderr
    assert "window for duplicates is 10 s there, 20 s here" in ran.stderr
    assert penstock("publish", "pipe.py", *on).returncode == 0


def test_a_publisher_whose_stream_a_worker_has_made_is_told_what_to_do(
    penstock: Penstock, server: Servers
) -> None:
    on = ("--on", server.urls[0], "--name", "early")
    event = lines({"id": 1, "key": "a", "n": 1})
    # Makes the stream as a worker does that is started first.
    assert penstock("publish", "pipe.py", *on).returncode == 0
    ran = penstock("publish", "pipe.py", "--partitions", "8", *on, given=event)
    assert ran.returncode == 2
    assert "partitions is 64 there, 8 here" in ran.stderr
    assert "Leave --partitions out to use what is there. It has had no events" in ran.stderr
    assert "delete it, and publish before you start them again" in ran.stderr
    assert penstock("publish", "pipe.py", *on, given=event).returncode == 0
    ran = penstock("publish", "pipe.py", "--partitions", "8", *on, given=event)
    assert "To change a pipeline's own settings let its workers finish" in ran.stderr


def test_a_stream_that_the_servers_have_no_room_for_is_reported(
    penstock: Penstock, server: Servers
) -> None:
    on = ("--on", server.urls[0], "--name", "large", "--room", str(1 << 60))
    ran = penstock("publish", "pipe.py", *on)
    assert ran.returncode == 2
    assert "insufficient storage" in ran.stderr
    assert "--room" in ran.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("run", "pipe.py", "--on", "http://a"), "give nats://host:port"),
        (("run", "pipe.py", "--on", "nats://"), "needs an address"),
        (("run", "pipe.py", "--on", "a", "--input", "b"), "penstock publish pipe.py"),
        (("run", "pipe.py", "--on", "a", "--name", "a.b"), "use letters, digits"),
        (("run", "pipe.py", "--on", "a", "--partitions", "0"), "at least 1"),
        (("run", "pipe.py", "--workers", "0"), "number of at least 1"),
        (("run", "pipe.py", "--workers", "2", "--on", "a"), "give one"),
    ],
)
def test_what_is_impossible_is_reported_before_anything_runs(
    penstock: Penstock, words: tuple[str, ...], said: str
) -> None:
    ran = penstock(*words)
    assert ran.returncode == 2
    assert said in ran.stderr
    assert "Traceback" not in ran.stderr
