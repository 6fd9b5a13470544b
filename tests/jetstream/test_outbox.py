"""How long a message is tried to be stored, with a server that is made up, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest
from nats.aio.msg import Msg
from nats.errors import OutboundBufferLimitError
from orjson import dumps

from streams.errors import PublishFailed, StreamMissing
from streams.jetstream.client import Client
from streams.jetstream.layout import Layout
from streams.jetstream.outbox import Outbox
from streams.jetstream.publisher import Publisher
from streams.testing.plugin import Run

STORED = b'{"stream": "s", "seq": 1}'
NO_STREAM = b""
UNCLEAR = dumps({"error": {"code": 503, "description": "raft: not leader"}})
FULL = dumps({"error": {"code": 503, "description": "maximum bytes exceeded"}})
REFUSED = dumps({"error": {"code": 400, "description": "wrong last sequence"}})
LOST = None


class Server:
    """Answers by the time; says when it was tried, and with which id."""

    max_payload = 1 << 20
    is_connected = True

    def __init__(self, answer: Callable[[float], bytes | Exception | None]) -> None:
        self.tries: list[float] = []
        self.ids: set[str] = set()
        self._answer = answer

    def new_inbox(self) -> str:
        return "inbox"

    async def subscribe(self, subject: str, cb: Callable[[Msg], Awaitable[None]]) -> Any:
        self.answered = cb
        return self

    async def unsubscribe(self) -> None:
        """Nobody is told anything any more."""

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
            message = Msg(cast(Client, self), subject=reply, data=answer)
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
    """Stores what comes at first; then answers so, until a time; then otherwise."""
    return Server(lambda now: STORED if not now else answer if now < until else then)


def given_up(server: Server, run: Run, window: float = 10.0) -> tuple[str, float]:
    """What is said of a message that is given up, and the seconds from its first to its last
    try."""
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


def test_a_stream_that_never_was_there_is_missing(run: Run) -> None:
    async def story() -> None:
        async with Publisher(
            cast(Client, Server(lambda now: NO_STREAM)), Layout("p", "id", "id")
        ) as publisher:
            await publisher.publish({"id": 1})

    with pytest.raises(StreamMissing, match=r"no stream takes 'penstock.p.in"):
        run(story())


def test_a_refusal_for_good_is_told_at_once(run: Run) -> None:
    server = then(REFUSED, 1000, STORED)
    with pytest.raises(PublishFailed, match="wrong last sequence"):
        run(publish(server))
    assert len(server.tries) == 1


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
