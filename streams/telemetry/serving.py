"""Serves the live page of a run on an address, by uvicorn, on the run's own loop."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Generator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote

from penstock.streams.base.errors import BuildError
from penstock.streams.base.extras import missing_extra
from penstock.streams.telemetry.access import Access, is_any, is_loopback, new_token
from penstock.streams.telemetry.feed import Fleet
from penstock.streams.telemetry.run_app import run_app

if TYPE_CHECKING:
    from penstock.streams.running.handle import Handle

__all__ = ["Serving"]

# Seconds that a request has at the end.
_GRACE = 1.0


class Serving:
    """The server of one run: `async with running.serve(9464) as serving`.

    `url` is the address of the page, with the token in its fragment, which browsers do not send.
    """

    def __init__(
        self,
        running: Handle,
        port: int,
        host: str,
        token: str | None,
        allow_control: bool,
        hosts: tuple[str, ...],
        title: str | None,
        show_values: bool,
        fleet: Fleet | None = None,
    ) -> None:
        if token is None and (allow_control or not is_loopback(host)):
            token = new_token()
        self._access = Access(host, token, allow_control, hosts)
        try:
            import uvicorn
        except ImportError as error:
            raise missing_extra("A live page is served by uvicorn", "serve") from error
        app, self._feed = run_app(
            running, self._access, title=title, show_values=show_values, fleet=fleet
        )
        self._socket = _listening(host, port)
        address: tuple[str, int] = self._socket.getsockname()[:2]
        self._host, self._port = address
        config = uvicorn.Config(
            app,
            lifespan="off",
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=int(_GRACE),
            # A stream of lines says more than a server's name.
            server_header=False,
        )
        self._server = _without_signals(uvicorn)(config)
        self._task: asyncio.Task[None] | None = None

    @property
    def port(self) -> int:
        """The port on which it listens."""
        return self._port

    @property
    def token(self) -> str | None:
        """The token, if one is needed."""
        return self._access.token

    @property
    def url(self) -> str:
        """The address of the page."""
        host = self._host
        if is_any(host):
            host = socket.gethostname()
        shown = f"[{host}]" if ":" in host else host
        token = self._access.token
        return f"http://{shown}:{self.port}/" + (
            "" if token is None else f"#token={quote(token, safe='')}"
        )

    async def __aenter__(self) -> Self:
        serve = self._server.serve(sockets=[self._socket])
        self._task = asyncio.get_running_loop().create_task(serve, name="penstock serve")
        # Who connects before it has begun waits, for the socket listens.
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._feed.close()
        self._server.should_exit = True
        assert self._task is not None
        try:
            await self._task
        finally:
            self._socket.close()


def _listening(host: str, port: int) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        return socket.create_server(address[:2], family=family)
    except (OSError, UnicodeError) as error:
        # A text that cannot be a name at all is an error of its encoding.
        why = getattr(error, "strerror", None) or error
        raise BuildError(
            f"cannot listen on {host}:{port}: {why}. Choose another address of this machine, "
            "another port, or 0 for a free one"
        ) from error


def _without_signals(uvicorn: Any) -> Any:
    """A server that leaves the signals of the process to the pipeline."""

    class Server(uvicorn.Server):  # type: ignore[misc]
        @contextmanager
        def capture_signals(self) -> Generator[None]:
            yield

    return Server
