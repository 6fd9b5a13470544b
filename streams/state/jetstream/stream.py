"""The stream of a store: made by the first run, with settings that its batches need."""

from __future__ import annotations

import asyncio
import os
import re
from base64 import b64decode
from collections.abc import Sequence
from datetime import datetime
from socket import gethostname
from typing import TYPE_CHECKING, Any, NamedTuple

from orjson import loads

from penstock.streams.base.errors import (
    BuildError,
    CannotOpen,
    DatabaseUnavailable,
    ServerTooOld,
    StreamDiffers,
    StreamMissing,
)
from penstock.streams.nats.client.addresses import addresses_of, shown
from penstock.streams.nats.client.answers import answered, api
from penstock.streams.nats.client.connection import connect, is_refused, refusal
from penstock.streams.nats.client.refusals import refusal_of
from penstock.streams.state.backend import other_format
from penstock.streams.state.jetstream.batch import EXPECTED, batch
from penstock.streams.state.jetstream.messages import Head, New, head_in

if TYPE_CHECKING:
    from nats.aio.msg import Msg

    from penstock.streams.nats.client.client import Client

__all__ = ["FoundHead", "NewHead", "Stream", "address_in"]

_OLDEST = (2, 12)

# Seconds for which a commit is tried, and between two attempts.
_PATIENCE = 60.0
_SOON, _LATEST = 0.05, 1.0

# Seconds in which servers answer.
_ANSWER = 5.0

# Seconds in which another run that uses the store answers.
_OTHER = 1.0

# Answers of the API (server/errors.json): a message expected another one before it; a batch lacks
# messages, or too many are open.
_WRONG_SEQUENCE = (10071, 10164)
_AGAIN = (10176, 10210, 10211)


class NewHead(NamedTuple):
    """A head to be stored under a subject, whose last one has the sequence `last`, 0 if there is
    none."""

    subject: str
    head: Head
    last: int


FoundHead = tuple[Head, int, float]
"""A head, the sequence of its message, and when that was stored."""


def address_in(url: str) -> tuple[tuple[str, ...], str]:
    """The addresses of servers and the name of a stream in a URL. Raises BuildError."""
    servers, _, stream = url.rpartition("/")
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,200}", stream) or "//" not in servers.rstrip("/"):
        raise BuildError(
            f"Store({shown([url])!r}) names no stream: write nats://HOST:PORT/STREAM, with letters,"
            " digits, - and _ in the name. The first run makes the stream."
        )
    return addresses_of(servers), stream


class Stream:
    """A connection to the servers, for the stream of one store. Its methods are called in the
    thread of an event loop."""

    def __init__(self, servers: Sequence[str], name: str) -> None:
        self.name = name
        self.where = f"{','.join(shown([one]) for one in servers)}/{name}"
        self.born = ""
        self._servers = servers
        self._client: Client | None = None

    @property
    def client(self) -> Client:
        assert self._client is not None
        return self._client

    async def open(self, *, makes: bool) -> None:
        """Connect, and find the stream, or make it. Raises CannotConnect, ServerTooOld,
        StreamMissing and StreamDiffers."""
        from nats.js.errors import NotFoundError

        client = self._client = await connect(self._servers, counts=False)
        version = client.connected_server_version
        if (version.major, version.minor) < _OLDEST:
            raise self._too_old(f"{version.major}.{version.minor}")
        try:
            info = await api(client, f"STREAM.INFO.{self.name}", {})
        except NotFoundError:
            if not makes:
                raise StreamMissing(
                    f"There is no store at {self.where}: no run has made it yet."
                ) from None
            info = await self._make(client)
        self._check(info["config"])
        self.born = info["created"]

    async def _make(self, client: Client) -> dict[str, Any]:
        from nats.js.errors import APIError

        config = {
            "name": self.name,
            "subjects": [f"{self.name}.>"],
            # What is there is the last message of each subject.
            "max_msgs_per_subject": 1,
            "retention": "limits",
            "discard": "old",
            "storage": "file",
            "num_replicas": 3 if len(client.servers) >= 3 else 1,
            "allow_atomic": True,
            "allow_direct": True,
            "allow_msg_ttl": True,
            "metadata": {"penstock.store": "1"},
        }
        try:
            return await api(client, f"STREAM.CREATE.{self.name}", config)
        except APIError as error:
            raise StreamDiffers(
                f"The NATS servers refuse to make the stream {self.name!r} for a store: "
                f"{error.description}. Give the store another name: its subjects are "
                f"{self.name}.>, which no other stream may have."
            ) from error

    def _check(self, config: dict[str, Any]) -> None:
        if "penstock.store" not in (config.get("metadata") or {}):
            raise StreamDiffers(
                f"There is a stream {self.name!r} at {self.where} which no store has made: give "
                "the store another name."
            )
        if not config.get("allow_atomic"):
            # A leader of an older version leaves it out.
            raise self._too_old(
                "older than 2.12, or the stream was changed: it has no allow_atomic"
            )
        if config.get("max_msgs_per_subject") != 1 or config.get("discard") != "old":
            raise StreamDiffers(
                f"The stream {self.name!r} at {self.where} has other settings than its store made: "
                "it must keep one message of each subject (max_msgs_per_subject) and discard old "
                "ones."
            )

    def _too_old(self, version: str) -> ServerTooOld:
        return ServerTooOld(
            f"The NATS server at {shown(self._servers)} is of version {version}: a store needs "
            "atomic batches of messages, which servers have from 2.12 on. Update the servers, or "
            "use another store, such as a file or postgresql://."
        )

    async def refuse_another(self) -> None:
        """Raise CannotOpen if another run uses the store and answers; from now on this one does.

        A run that does not answer, as if its machine had lost the network, is followed: what it
        commits is refused.
        """
        from nats.errors import NoRespondersError

        subject = f"penstock-store.{self.name}"
        try:
            other = await self.client.request(subject, b"", timeout=_OTHER)
        except (NoRespondersError, TimeoutError):
            pass
        else:
            raise CannotOpen(
                f"Another run uses the store {self.where}: {other.data.decode()}. Wait until it has"
                " ended, or use another store."
            )
        who = f"process {os.getpid()} of {gethostname()}".encode()

        async def answer(message: Msg) -> None:
            await message.respond(who)

        await self.client.listen(subject, answer)

    async def close(self) -> None:
        """End the connection."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def head(self, subject: str) -> FoundHead | None:
        """The head that a subject has, as the leader of the stream says; None if there is none."""
        from nats.js.errors import NotFoundError

        ask = {"last_by_subj": subject}
        try:
            found = (await api(self.client, f"STREAM.MSG.GET.{self.name}", ask))["message"]
        except NotFoundError:
            return None
        stored = datetime.fromisoformat(found["time"]).timestamp()
        return head_in(b64decode(found["data"])), found["seq"], stored

    async def heads(self) -> list[str]:
        """The partitions that have a head."""
        of_all = f"{self.name}.head.*"
        info = await api(self.client, f"STREAM.INFO.{self.name}", {"subjects_filter": of_all})
        subjects: dict[str, int] = info["state"].get("subjects") or {}
        return [subject.rpartition(".")[2] for subject in subjects]

    async def check_format(self, known: int) -> None:
        """Raise CannotOpen if there is nothing, or of another format."""
        for partition in await self.heads():
            found = await self.head(f"{self.name}.head.{partition}")
            if found is not None and found[0].format != known:
                raise other_format(self.where, found[0].format, known)
            return
        raise CannotOpen(f"{self.where} is not a store yet: no run has begun to use it.")

    async def publish(self, messages: Sequence[New]) -> None:
        """Store messages that may be stored twice. Raises CannotConnect."""
        from nats.errors import Error

        for subject, body, fields, _ in messages:

            async def ask(subject: str = subject, body: bytes = body, fields: Any = fields) -> Msg:
                try:
                    reply: Msg = await self.client.request(
                        subject, body, timeout=_ANSWER, headers=dict(fields)
                    )
                except Error as error:
                    raise TimeoutError(str(error)) from error
                return reply

            answer: dict[str, Any] = loads((await answered(ask)).data)
            if "error" in answer:
                why = answer["error"].get("description")
                raise CannotOpen(f"The store {self.where} refuses a message: {why}.")

    async def commit(
        self, messages: list[New], heads: Sequence[NewHead]
    ) -> list[int] | list[FoundHead | None]:
        """Store messages with new heads in one batch; returns the sequences of the heads. If one of
        them is not as it was by now, nothing is stored, and what is there is returned.

        Repeats what servers may not have, for a minute: what was stored is recognised by its heads.
        Raises DatabaseUnavailable after that, CannotConnect if the servers do not accept the
        credentials any more, CannotOpen for what they refuse, and PayloadTooLarge.
        """
        from nats.errors import Error

        whole = [*messages]
        whole += [New(one.subject, one.head.body, {EXPECTED: str(one.last)}) for one in heads]
        loop = asyncio.get_running_loop()
        until, pause = loop.time() + _PATIENCE, _SOON
        while True:
            client = self.client
            why = f"no connection: {client.last_error}"
            if client.is_connected:
                try:
                    answer = await batch(client, whole)
                except (Error, TimeoutError) as error:
                    why = f"{type(error).__name__} {error}".strip()
                else:
                    if "error" not in answer:
                        # The messages of a batch have numbers in a row.
                        last = int(answer["seq"])
                        return [last - behind for behind in reversed(range(len(heads)))]
                    refused = answer["error"]
                    why = str(refused.get("description"))
                    code = refused.get("err_code")
                    if code in _WRONG_SEQUENCE:
                        found = [await self.head(one.subject) for one in heads]
                        stored = [
                            there[1]
                            for one, there in zip(heads, found, strict=True)
                            if there is not None and there[0][:3] == one.head[:3]
                        ]
                        if len(stored) == len(heads):
                            # It was stored: only the answer was lost.
                            return stored
                        if any(map(_is_another, heads, found)):
                            return found
                        # One that was sent before is under way.
                    elif code not in _AGAIN and refusal_of(refused) == "final":
                        raise CannotOpen(f"The store {self.where} refuses a commit: {why}.")
            elif is_refused(client):
                raise await refusal(client)
            if loop.time() > until:
                raise DatabaseUnavailable(
                    f"The store {self.where} could not be used for {_PATIENCE:g} s ({why}). Start "
                    "the pipeline again when the NATS servers are back: events that are not "
                    "committed come again."
                )
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LATEST)

    def lost(self) -> CannotOpen:
        """The error of a run whose heads are not there, and no others of other runs."""
        return CannotOpen(
            f"The stream of the store {self.where} has lost what it had, as after a power failure, "
            "or because it was deleted or purged: start the pipeline again, which goes on from "
            "what is there."
        )


def _is_another(new: NewHead, found: FoundHead | None) -> bool:
    """Whether a head is not the one that the new one expects."""
    return (0 if found is None else found[1]) != new.last
