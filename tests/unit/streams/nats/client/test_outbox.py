"""How long publishing a message is tried, with a fake server, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest
from nats.aio.msg import Msg
from nats.errors import Error, OutboundBufferLimitError
from nats.js.errors import NotFoundError, ServiceUnavailableError
from orjson import dumps, loads

from penstock.streams.base.errors import CannotConnect, PublishFailed, RightsMissing, StreamMissing
from penstock.streams.nats.client.client import Client
from penstock.streams.nats.client.outbox import Outbox
from penstock.streams.nats.cluster.layout import Layout
from penstock.streams.nats.cluster.publisher import Publisher
from penstock.streams.testing.plugin import Run

STORED = b'{"stream": "s", "seq": 1}'
NO_STREAM = b""
LOST = None


def refused(status: int, code: int, description: str) -> bytes:
    """The answer of a server that refuses; codes and texts as in its `errors.json`."""
    error = {"code": status, "err_code": code, "description": description}
    return dumps({"error": error, "stream": "s", "seq": 0})


UNCLEAR = refused(503, 10077, "raft: not leader")
FULL = refused(503, 10077, "maximum bytes exceeded")
IN_PROCESS = refused(409, 10158, "duplicate message id is in process")
# After these nothing is stored.
LATER = [
    FULL,
    refused(503, 10077, "maximum messages exceeded"),
    refused(429, 10167, "too many requests"),
    refused(400, 10002, "resource limits exceeded for account"),
    refused(500, 10047, "insufficient storage resources available"),
    refused(500, 10028, "insufficient memory resources available"),
]
# After these it is not known.
PERHAPS = [
    IN_PROCESS,
    refused(500, 10009, "JetStream cluster can not handle request"),
    refused(503, 10008, "JetStream system temporarily unavailable"),
    refused(500, 10118, "stream is offline"),
    refused(503, 10077, "store is closed"),
    refused(500, 19999, "an error of a later version"),
]
FOR_GOOD = [
    refused(400, 10071, "wrong last sequence: 5"),
    refused(400, 10054, "message size exceeds maximum allowed"),
    refused(400, 10109, "invalid operation on sealed stream"),
    refused(400, 10060, "expected stream does not match"),
    refused(503, 10077, "message too large"),
    refused(503, 10077, "maximum messages per subject exceeded"),
    refused(500, 10111, "rollup not permitted"),
    refused(400, 19999, "a refusal of a later version"),
]


def description(refusal: bytes) -> str:
    text: str = loads(refusal)["error"]["description"]
    return text


class Server:
    """Answers by the time; records the attempts with their ids."""

    max_payload = 1 << 20
    is_connected = True
    last_error: Exception | None = None

    def __init__(self, answer: Callable[[float], bytes | Exception | None]) -> None:
        self.tries: list[float] = []
        self.ids: set[str] = set()
        self._answer = answer
        # When it was asked for the stream of a subject, and what it says.
        self.asked: list[float] = []
        self.found: str | Exception = "s"

    def new_inbox(self) -> str:
        return "inbox"

    async def listen(self, subject: str, heard: Callable[[Msg], Awaitable[None]]) -> Any:
        self.answered = heard
        return self

    def watch(self, refused: Callable[[str], None]) -> None:
        self.refused = refused

    def unwatch(self, refused: Callable[[str], None]) -> None:
        """Refusals are no longer watched."""

    async def unsubscribe(self) -> None:
        """No messages come any more."""

    def jetstream(self, timeout: float) -> Server:
        return self

    async def find_stream_name_by_subject(self, subject: str) -> str:
        self.asked.append(asyncio.get_running_loop().time())
        if isinstance(self.found, Exception):
            raise self.found
        return self.found

    async def publish(
        self, subject: str, payload: bytes, reply: str, headers: dict[str, str]
    ) -> None:
        now = asyncio.get_running_loop().time()
        self.tries.append(now)
        self.ids.add(headers["Nats-Msg-Id"])
        answer = self._answer(now)
        if isinstance(answer, Exception):
            raise answer
        if answer is not None:
            status = {} if answer else {"Status": "503"}
            message = Msg(cast(Client, self), subject=reply, data=answer, headers=status)
            asyncio.get_running_loop().call_later(
                0.001, lambda: asyncio.ensure_future(self.answered(message))
            )


async def publish(server: Server, window: float = 10.0) -> None:
    """Publish one event after one that was stored."""
    async with Publisher(cast(Client, server), Layout("p", "id", "id", window)) as publisher:
        await publisher.publish({"id": 0})
        server.tries.clear()
        server.ids.clear()
        await publisher.publish({"id": 1})


def then(answer: bytes | Exception | None, until: float, then: bytes | None) -> Server:
    """Stores the first message; then gives one answer until a time, then another."""
    return Server(lambda now: STORED if not now else answer if now < until else then)


def given_up(server: Server, run: Run, window: float = 10.0) -> tuple[str, float]:
    """The error of a message that is given up, and the seconds from its first to its last
    attempt."""
    with pytest.raises(PublishFailed) as told:
        run(publish(server, window))
    return str(told.value), server.tries[-1] - server.tries[0]


@pytest.mark.parametrize("refusal", [NO_STREAM, FULL, OutboundBufferLimitError()])
def test_what_is_not_stored_is_tried_for_longer_than_ids_are_remembered(
    refusal: Any, run: Run
) -> None:
    server = then(refusal, 40, STORED)
    run(publish(server))
    assert 40 <= server.tries[-1] < 42
    assert len(server.ids) == 1


@pytest.mark.parametrize("refusal", [NO_STREAM, FULL])
def test_what_is_never_taken_is_not_stored(refusal: bytes, run: Run) -> None:
    said, seconds = given_up(then(refusal, 1000, STORED), run)
    assert "within 60 s" in said
    assert "it is not stored" in said
    assert 58 <= seconds < 60


@pytest.mark.parametrize("answer", [LOST, UNCLEAR])
def test_what_may_be_stored_is_never_tried_after_the_server_may_have_forgotten_its_id(
    answer: bytes | None, run: Run
) -> None:
    said, seconds = given_up(then(answer, 1000, STORED), run)
    assert "it may or may not be stored" in said
    assert 4 <= seconds < 8


@pytest.mark.parametrize(
    "answer",
    [b"{}", b"OK", b"7", b"[]", b"null", b'{"error": "no"}', b'{"error": {}}', b'{"stream": "s"}'],
)
def test_an_answer_of_another_service_does_not_count_as_stored_and_is_reported_once(
    answer: bytes, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    server = then(answer, 3, STORED)
    run(publish(server))
    assert server.tries[-1] >= 3
    (told,) = caplog.messages
    assert "is not that of a stream" in told


@pytest.mark.parametrize("window", [0.5, 1.0, 3.0])
def test_a_window_is_never_too_short(window: float, run: Run) -> None:
    _, seconds = given_up(then(UNCLEAR, 1000, STORED), run, window)
    assert seconds < window


def test_tries_of_which_it_is_clear_that_they_stored_nothing_take_nothing_from_the_window(
    run: Run,
) -> None:
    def answer(now: float) -> bytes | None:
        if not now:
            return STORED
        if now < 30:
            return NO_STREAM
        return LOST if now < 35 else STORED

    server = Server(answer)
    run(publish(server))
    assert 35 <= server.tries[-1] < 38


def test_what_may_be_stored_stays_in_doubt_whatever_is_said_to_later_tries(run: Run) -> None:
    def answer(now: float) -> bytes | None:
        if not now:
            return STORED
        return LOST if now < 2 else NO_STREAM

    said, seconds = given_up(Server(answer), run)
    assert "it may or may not be stored" in said
    assert seconds < 8


def test_an_answer_that_came_late_is_an_answer(run: Run) -> None:
    server = Server(lambda now: LOST)

    async def story() -> None:
        async with Publisher(cast(Client, server), Layout("p", "id", "id")) as publisher:
            publishing = asyncio.ensure_future(publisher.publish({"id": 1}))
            await asyncio.sleep(5)
            await server.answered(Msg(cast(Client, server), subject="inbox.1", data=STORED))
            await publishing
            assert publisher.published == 1

    run(story())


def test_a_connection_that_is_away_is_given_nothing_that_it_would_send_later(run: Run) -> None:
    server = Server(lambda now: STORED)

    async def story() -> None:
        async with Publisher(cast(Client, server), Layout("p", "id", "id")) as publisher:
            server.is_connected = False
            publishing = asyncio.ensure_future(publisher.publish({"id": 1}))
            await asyncio.sleep(30)
            assert server.tries == []
            server.is_connected = True
            await publishing

    run(story())
    assert len(server.tries) == 1


def test_what_cannot_be_written_for_lack_of_a_connection_says_why_there_is_none(run: Run) -> None:
    server = Server(lambda now: STORED)
    server.is_connected = False
    server.last_error = Error("nats: 'Authorization Violation'")

    async def story() -> None:
        async with Outbox(cast(Client, server)) as outbox:
            with pytest.raises(PublishFailed, match=r"Authorization Violation.*it is not stored"):
                await outbox.stored("subject", b"", "id")

    run(story())


def test_a_stream_that_never_was_there_is_missing(run: Run) -> None:
    async def story() -> None:
        async with Publisher(
            cast(Client, Server(lambda now: NO_STREAM)), Layout("p", "id", "id")
        ) as publisher:
            await publisher.publish({"id": 1})

    with pytest.raises(StreamMissing, match=r"no stream takes 'penstock.p.in"):
        run(story())


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (NotFoundError(), r"no stream takes 'penstock\.p\.in.*make one"),
        (ServiceUnavailableError(), "no NATS server here has JetStream: start it with -js"),
    ],
)
def test_a_stream_of_which_the_server_knows_nothing_is_missing_after_a_few_seconds(
    run: Run, found: Exception, said: str
) -> None:
    server = Server(lambda now: NO_STREAM)
    server.found = found

    async def story() -> None:
        async with Publisher(cast(Client, server), Layout("p", "id", "id")) as publisher:
            await publisher.publish({"id": 1})

    with pytest.raises((StreamMissing, CannotConnect), match=said):
        run(story())
    assert server.tries[-1] - server.tries[0] < 4


@pytest.mark.parametrize(
    "found", ["s", TimeoutError(), ServiceUnavailableError(503, "no leader"), RightsMissing("no")]
)
def test_a_stream_that_may_be_there_is_waited_for(run: Run, found: str | Exception) -> None:
    server = Server(lambda now: NO_STREAM if now < 40 else STORED)
    server.found = found

    async def story() -> None:
        async with Publisher(cast(Client, server), Layout("p", "id", "id")) as publisher:
            await asyncio.gather(*(publisher.publish({"id": n}) for n in range(20)))

    run(story())
    assert 40 <= server.tries[-1] < 42
    # Once a second, however many events wait.
    assert 20 <= len(server.asked) <= 40


def test_a_stream_that_was_there_is_waited_for_though_servers_have_forgotten_it(run: Run) -> None:
    server = then(NO_STREAM, 40, STORED)
    server.found = NotFoundError()
    run(publish(server))
    assert 40 <= server.tries[-1] < 42


@pytest.mark.parametrize("refusal", LATER, ids=description)
def test_a_refusal_that_passes_and_stored_nothing_is_waited_out_for_a_minute(
    refusal: bytes, run: Run
) -> None:
    server = then(refusal, 40, STORED)
    run(publish(server))
    assert 40 <= server.tries[-1] < 42


@pytest.mark.parametrize("refusal", PERHAPS, ids=description)
def test_a_refusal_that_passes_is_waited_out_within_the_window(refusal: bytes, run: Run) -> None:
    run(publish(then(refusal, 5, STORED)))
    said, seconds = given_up(then(refusal, 1000, STORED), run)
    assert "it may or may not be stored" in said
    assert 4 <= seconds < 8


@pytest.mark.parametrize("refusal", FOR_GOOD, ids=description)
def test_a_refusal_for_good_is_reported_in_the_words_of_the_server(
    refusal: bytes, run: Run
) -> None:
    server = then(refusal, 1000, STORED)
    with pytest.raises(PublishFailed, match=description(refusal)):
        run(publish(server))
    assert len(server.tries) == 1


def test_an_id_that_is_in_process_since_a_try_without_an_answer_is_asked_about_again(
    run: Run,
) -> None:
    def answer(now: float) -> bytes | None:
        if not now:
            return STORED
        # Two of three servers are frozen for four seconds.
        return LOST if now < 2 else IN_PROCESS if now < 4 else STORED

    server = Server(answer)
    run(publish(server))
    assert 4 <= server.tries[-1] < 6


def test_others_do_not_wait_for_one_that_is_tried_again(run: Run) -> None:
    stored: list[tuple[str, float]] = []
    server = Server(lambda now: NO_STREAM if now < 5 else STORED)

    async def story() -> None:
        outbox = Outbox(cast(Client, server))
        await outbox.start()
        loop = asyncio.get_running_loop()

        async def one(name: str) -> None:
            await outbox.stored("s", b"", name)
            stored.append((name, loop.time()))

        first = asyncio.ensure_future(one("first"))
        await asyncio.sleep(5)
        await one("second")
        await first
        await outbox.stop()

    run(story())
    assert [name for name, _ in stored] == ["second", "first"]
    assert stored[0][1] < 5.01


def test_a_subject_that_the_server_would_cut_us_off_for_is_refused_at_once(run: Run) -> None:
    server = Server(lambda now: STORED)

    async def story() -> None:
        async with Outbox(cast(Client, server)) as outbox:
            for subject in ("s" * 4_000, "\N{GRINNING FACE}" * 1_000):
                with pytest.raises(ValueError, match="is longer than a server takes"):
                    await outbox.stored(subject, b"", "1")
            await outbox.stored("s" * 3_900, b"", "1")

    run(story())
    assert len(server.tries) == 1
