"""Requests to the API of servers, which may be unavailable or electing a leader."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from orjson import dumps, loads

from penstock.streams.base.errors import CannotConnect

if TYPE_CHECKING:
    from nats.js.api import StreamInfo

    from penstock.streams.nats.client.client import Client

__all__ = ["answered", "api", "born_of", "has_no_answer", "info_of", "stored_at"]

log = logging.getLogger("penstock")

T = TypeVar("T")

# Seconds: longer than a server takes to restart; if no server has JetStream, which may be
# permanent; and between two tries.
_PATIENCE, _UNHEARD, _PAUSE = 30.0, 3.0, 0.25
# Seconds in which a server answers, and does something, and after which it is said that none does.
_ANSWER, _LONG, _SAY = 2.0, 5.0, 3.0
# The calls that wait for servers; one of them has said so.
_waiting: dict[object, bool] = {}


async def answered(ask: Callable[[], Awaitable[T]]) -> T:
    """The result of `ask`, which is repeated while the servers cannot answer.

    After some seconds the log says so, once for all that wait. Raises permanent errors at once, and
    in the end CannotConnect.
    """
    from nats.errors import NoRespondersError
    from nats.js.errors import APIError

    loop, call = asyncio.get_running_loop(), object()
    began = loop.time()
    try:
        while True:
            try:
                return await ask()
            except (APIError, NoRespondersError, TimeoutError) as error:
                patience = _patience(error)
                if not patience:
                    raise
                waited = loop.time() - began
                if waited >= patience:
                    raise CannotConnect(
                        f"the NATS server answers no JetStream requests ({_text(error)}): start it "
                        "with -js, or wait until its cluster has a leader and all of its servers"
                    ) from error
                _waiting.setdefault(call, False)
                if waited >= _SAY and not any(_waiting.values()):
                    _waiting[call] = True
                    log.warning(
                        "waiting for the NATS servers, which have answered no JetStream request "
                        "for %.0f s (%s): they have no leader, or most of them are away",
                        *(waited, _text(error)),
                    )
            await asyncio.sleep(_PAUSE)
    finally:
        _waiting.pop(call, None)


async def api(client: Client, what: str, fields: dict[str, Any]) -> dict[str, Any]:
    """The answer to a request to the API of servers, which is repeated while they cannot answer.
    Raises errors of the API, and CannotConnect."""

    async def ask() -> dict[str, Any]:
        return await _asked(client, what, fields, _LONG)

    return await answered(ask)


async def _asked(
    client: Client, what: str, fields: dict[str, Any] | None = None, seconds: float = _ANSWER
) -> dict[str, Any]:
    """The answer to one request. Raises errors of the API, and what silence raises."""
    from nats.js.errors import APIError

    body = b"" if fields is None else dumps(fields)
    reply = await client.request(f"$JS.API.{what}", body, timeout=seconds)
    answer: dict[str, Any] = loads(reply.data)
    if "error" in answer:
        APIError.from_error(answer["error"])
    return answer


def has_no_answer(error: BaseException) -> bool:
    """Whether the servers are away, or have no leader, and may answer later."""
    from nats.errors import NoRespondersError
    from nats.js.errors import ServiceUnavailableError

    return isinstance(error, (TimeoutError, NoRespondersError, ServiceUnavailableError))


async def info_of(client: Client, stream: str, consumer: str) -> dict[str, Any]:
    """The server's facts about a consumer, including those that nats-py leaves out.

    Raises NotFoundError, other errors of the API, RightsMissing, and what silence raises.
    """
    return await _asked(client, f"CONSUMER.INFO.{stream}.{consumer}")


def born_of(stream: StreamInfo) -> str:
    """When a stream was created."""
    return str(stream.created)


async def stored_at(client: Client, stream: str, sequence: int) -> float | int:
    """When a message of a stream was stored, in seconds since 1970; if it is not there, the number
    of the last message that ever was. Raises errors of the API, and what silence raises."""
    from nats.js.errors import NotFoundError

    try:
        found = await _asked(client, f"STREAM.MSG.GET.{stream}", {"seq": sequence})
    except NotFoundError:
        return int((await _asked(client, f"STREAM.INFO.{stream}"))["state"]["last_seq"])
    message = found["message"]
    return datetime.fromisoformat(message["time"]).timestamp()


def _patience(error: Exception) -> float:
    from nats.js.errors import APIError, ServiceUnavailableError

    if isinstance(error, ServiceUnavailableError):
        return _PATIENCE if error.code else _UNHEARD
    if isinstance(error, APIError):
        # "no suitable peers for placement", which is permanent for any other reason.
        return _PATIENCE if "offline" in (error.description or "") else 0
    return _PATIENCE if isinstance(error, TimeoutError) else _UNHEARD


def _text(error: Exception) -> str:
    return getattr(error, "description", None) or type(error).__name__
