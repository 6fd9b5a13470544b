from __future__ import annotations

import asyncio
import hashlib
import json
from base64 import b64decode
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nats.js.errors import BadRequestError, NotFoundError
from orjson import dumps

from penstock import adaptive_flat_map, from_iterable, route
from penstock.streams.base.errors import EventOmitted, PayloadTooLarge
from penstock.streams.failures.policy import DeadLetter
from penstock.streams.nats.cluster.layout import Layout
from penstock.streams.nats.cluster.letters import (
    JetStreamLetters,
    Letter,
    id_of,
    letters_of,
)
from penstock.streams.nats.cluster.publisher import send_again
from penstock.streams.testing import MemorySink, VirtualTimeLoop

MAX_PAYLOAD = 1 << 20


class Mark:
    key = "a2V5"

    def __init__(self, data: bytes = b"{}") -> None:
        self.data = data

    def __str__(self) -> str:
        return "message 7"


def letter(value: Any, stage: str = "flat_map") -> DeadLetter:
    return DeadLetter(value, ValueError("no"), stage, 3, 0.0, 1.0, Mark())


class Outbox:
    """Stores what a server would take."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.subjects: list[str] = []

    def send(
        self, subject: str, body: bytes, id: str, done: Any, fields: Mapping[str, str] = {}
    ) -> None:
        if len(body) + len(id) + 30 > MAX_PAYLOAD:
            raise PayloadTooLarge("a message of so many bytes")
        self.bodies.append(body)
        self.subjects.append(subject)
        done(None, False)

    async def stored(self, subject: str, body: bytes, id: str) -> bool:
        self.send(subject, body, id, lambda error, known: None)
        return False


def written(value: Any, error: Exception, data: bytes = b"{}") -> bytes:
    """A letter as it is stored."""
    outbox = Outbox()
    sink = JetStreamLetters(
        cast(Any, lambda: outbox), "dead", "s.dead", lambda one: id_of("s", one)
    )

    def fail(_: Any) -> None:
        raise error

    async def story() -> None:
        operator = adaptive_flat_map(fail, on_error=route(sink))
        await from_iterable([value]).pipe(operator).to(MemorySink()).run()

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(story())
    (body,) = outbox.bodies
    return body


def read(*bodies: bytes, foreign: list[str] | None = None) -> list[Letter]:
    """The letters of a stream that has these messages, the first of which is gone."""

    async def get_msg(stream: str, sequence: int) -> Any:
        if sequence < 1:
            raise BadRequestError(code=400, err_code=10003)
        if sequence == 1:
            raise NotFoundError
        return SimpleNamespace(data=bodies[sequence - 2])

    async def stream_info(stream: str) -> Any:
        last = len(bodies) + 1
        return SimpleNamespace(state=SimpleNamespace(first_seq=1, last_seq=last))

    js: Any = SimpleNamespace(get_msg=get_msg, stream_info=stream_info)
    said = [] if foreign is None else foreign

    async def story() -> list[Letter]:
        return [one async for one in letters_of(js, "dead", said.append)]

    return asyncio.run(story())


def sent_again(*letters: Letter) -> Outbox:
    outbox = Outbox()

    async def delete_msg(stream: str, sequence: int) -> None: ...

    js: Any = SimpleNamespace(delete_msg=delete_msg)

    async def story() -> None:
        for one in letters:
            await send_again(cast(Any, outbox), js, Layout("p", None, "k"), one)

    asyncio.run(story())
    return outbox


def test_events_that_came_of_one_message_have_letters_of_their_own() -> None:
    ids = [id_of("orders", letter(value)) for value in ({"part": 1}, {"part": 2})]
    assert len({*ids, id_of("orders", letter({"part": 1}, "batch"))}) == 3
    assert all(id.startswith("orders:message 7:") for id in ids)


def test_an_event_that_fails_again_elsewhere_has_the_same_letter() -> None:
    assert id_of("orders", letter({"part": 1})) == id_of("orders", letter({"part": 1}))


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("half \ud83d a pair"), "half \\ud83d a pair"),
        (ValueError("x" * 1_500_000), "x" * 10_000 + "... (1,500,000 characters)"),
        (Unspeakable(), "<Unspeakable whose str raised RuntimeError>"),
    ],
    ids=["surrogate", "long", "unspeakable"],
)
def test_whatever_an_error_says_its_letter_is_written(error: Exception, said: str) -> None:
    (found,) = read(written({"part": 1}, error))
    assert (found.value, found.error, found.message) == ({"part": 1}, type(error).__name__, said)


def test_a_record_is_in_its_letter_by_its_fields() -> None:
    class Order(msgspec.Struct):
        number: int

    (found,) = read(written(Order(7), ValueError("no")))
    assert found.value == {"number": 7}
    assert id_of("s", letter(Order(7))) == id_of("s", letter({"number": 7}))


def test_a_value_and_an_error_that_quotes_it_fit_together() -> None:
    value = {"text": "y" * 600_000}
    (found,) = read(written(value, ValueError(f"cannot read {value}")))
    assert found.value == value
    assert found.message.startswith("cannot read {'text': 'yyy")


@pytest.mark.parametrize(
    "value", [{"n": 1 << 70}, {"text": "\ud800"}, {1, 2}, {"f": print}], ids=str
)
def test_a_value_that_json_cannot_hold_is_written_as_python_shows_it(value: Any) -> None:
    (found,) = read(written(value, ValueError("no")))
    assert found.value == repr(value)
    assert id_of("s", letter(value)) == id_of("s", letter(value))


@pytest.mark.parametrize("data", [b"garbage", b"\xff\x00\xfe", b'{"half": ', b"\x1f\x8b" * 9])
def test_bytes_are_readable_in_their_letter_and_sent_again_as_they_were(data: bytes) -> None:
    body = written(data, ValueError("no"))
    assert b64decode(json.loads(body)["body"]) == data
    (found,) = read(body)
    assert found.value == data.decode("utf-8", "backslashreplace")
    assert sent_again(found).bodies == [data]


@given(st.binary(max_size=200))
def test_any_bytes_come_back(data: bytes) -> None:
    assert sent_again(*read(written(data, ValueError("no")))).bodies == [data]


@pytest.mark.parametrize(
    "value", [b"\xff" * 900_000, {"text": "\x00" * 400_000}], ids=["bytes", "json"]
)
def test_a_value_that_is_too_large_leaves_its_beginning_size_and_hash(value: Any) -> None:
    data = value if isinstance(value, bytes) else json.dumps(value, separators=(",", ":")).encode()
    body = written(value, ValueError("z" * 20_000))
    (found,) = read(body)
    assert found.omitted == {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    assert len(body) < 20_000
    assert found.value[:4] == data.decode("utf-8", "backslashreplace")[:4]
    with pytest.raises(EventOmitted, match="dead letter 2 holds only the beginning"):
        sent_again(found)


def test_a_stream_that_never_had_a_letter_has_none() -> None:
    async def get_msg(stream: str, sequence: int) -> Any:
        raise BadRequestError(code=400, err_code=10003)

    async def stream_info(stream: str) -> Any:
        return SimpleNamespace(state=SimpleNamespace(first_seq=0, last_seq=0))

    js: Any = SimpleNamespace(get_msg=get_msg, stream_info=stream_info)

    async def story() -> list[Letter]:
        return [one async for one in letters_of(js, "dead")]

    assert asyncio.run(story()) == []


@pytest.mark.parametrize(
    "foreign",
    [b"", b"hello", b"7", b"[]", b"{}", b'{"value": 1, "error": "E"}', b"\xff\xfe"],
)
def test_a_message_that_is_not_a_letter_is_named_and_hides_no_other(foreign: bytes) -> None:
    good = written({"part": 1}, ValueError("no"))
    said: list[str] = []
    assert [one.value for one in read(good, foreign, good, foreign=said)] == [{"part": 1}] * 2
    (named,) = said
    assert named.startswith("message 3 of 'dead' is not a dead letter")


def test_a_letter_of_a_later_version_is_read() -> None:
    fields = json.loads(written({"part": 1}, ValueError("no")))
    (found,) = read(json.dumps({**fields, "colour": "red"}).encode())
    assert found.value == {"part": 1}


def test_an_event_is_sent_again_with_its_key() -> None:
    (found,) = read(written({"k": 1}, ValueError("no")))
    key = Layout("p", None, "k").key_of(dumps({"k": 1}))
    assert sent_again(found).subjects == [f"penstock.p.in.{key}"]
