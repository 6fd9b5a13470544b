"""The live pages, metrics and health of several pipelines, as one ASGI application."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any

from penstock.streams.base.errors import BuildError, describe
from penstock.streams.base.extras import missing_extra
from penstock.streams.telemetry.access import Access
from penstock.streams.telemetry.collector import Collector
from penstock.streams.telemetry.guard import guarded, static
from penstock.streams.telemetry.run_app import run_app

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from penstock.streams.running.handle import Handle
    from penstock.streams.telemetry.feed import Feed

__all__ = ["WebApp", "web_app"]

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

# A segment of a path that needs no quoting, and none of the application's own.
_NAME = re.compile(r"(?!(?:metrics|healthz|readyz|pipelines)$)[A-Za-z0-9][A-Za-z0-9_.-]*")

_FILES = {
    "/": ("all.html", "text/html"),
    "/all.js": ("all.js", "text/javascript"),
    "/page.css": ("page.css", "text/css"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}


def web_app(
    *,
    host: str = "127.0.0.1",
    token: str | None = None,
    allow_control: bool = False,
    hosts: tuple[str, ...] = (),
    show_values: bool = False,
) -> WebApp:
    """An ASGI application with the live pages, metrics and health of the runs that are added to it.

    It is mounted in a server of one's own, before any pipeline has started; `add` shows a run. A
    run is on the page of its name, `/metrics` has the metrics of all with the label `pipeline`, and
    `/readyz` answers "ready" while each of them takes events, also if there is none. `host` is the
    address on which that server listens, and `hosts` are other names by which requests may call it,
    such as that of a proxy. Beyond the loopback interface, and to control pipelines, a `token` is
    needed. `show_values` shows values of events, such as keys. Raises BuildError without a token
    where one is needed, and MissingExtra.
    """
    if not isinstance(show_values, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise BuildError(f"web_app(show_values={show_values!r}): give True or False")
    access = Access(host, token, allow_control, hosts)
    if token is None and (allow_control or access.needs_token):
        raise BuildError("web_app(): give it a token, to control or beyond the loopback interface")
    return WebApp(access, show_values=show_values)


class WebApp:
    """Shows the runs that are added to it; made by `web_app`."""

    def __init__(self, access: Access, *, show_values: bool) -> None:
        try:
            import prometheus_client as _  # noqa: F401
            from starlette.applications import Starlette
            from starlette.responses import (
                JSONResponse,
                PlainTextResponse,
                RedirectResponse,
                Response,
            )
            from starlette.routing import Mount, Route
        except ImportError as error:
            raise missing_extra(
                "The live page needs starlette and prometheus-client", "serve"
            ) from error
        self._access = access
        self._show_values = show_values
        self._runs: dict[str, tuple[Handle, Any, Feed]] = {}
        self.collector = Collector(show_values=show_values)
        """The metrics of all runs, for a registry of one's own: `registry.register`."""

        async def metrics(request: Request) -> Response:
            text, media_type = self.collector.exposition(request.headers.get("accept", ""))
            return Response(text, media_type=media_type)

        async def pipelines(_: Request) -> Response:
            return JSONResponse(
                [
                    {"name": name, **_short(running.statistics())}
                    for name, (running, _, _) in self._runs.items()
                ]
            )

        async def health(_: Request) -> Response:
            return PlainTextResponse("ok\n")

        async def ready(_: Request) -> Response:
            runs = [running for running, _, _ in self._runs.values()]
            is_ready = all(running.is_ready for running in runs)
            return PlainTextResponse("ready\n") if is_ready else PlainTextResponse("no\n", 503)

        async def to_one(request: Request) -> Response:
            name = request.path_params["name"]
            if name not in self._runs:
                return PlainTextResponse("no pipeline of this name\n", 404)
            # Relative, because a proxy or a mount may be before it.
            return RedirectResponse(f"{name}/")

        async def of_one(scope: Scope, receive: Receive, send: Send) -> None:
            found = self._runs.get(scope["path_params"]["name"])
            app = PlainTextResponse("no pipeline of this name\n", 404) if not found else found[1]
            await app(scope, receive, send)

        files = (
            Route(path, guarded(access, static(*file), is_open=True))
            for path, file in _FILES.items()
        )
        self._app = Starlette(
            routes=[
                *files,
                Route("/metrics", guarded(access, metrics)),
                Route("/pipelines", guarded(access, pipelines)),
                Route("/healthz", guarded(access, health, is_open=True)),
                Route("/readyz", guarded(access, ready, is_open=True)),
                Route("/{name}", guarded(access, to_one)),
                Mount("/{name}", app=of_one),
            ]
        )
        self._app.router.redirect_slashes = False

    def add(self, running: Handle, name: str) -> None:
        """Show a run that has just been started, before anything is awaited, by this name.

        It takes the place of a run of this name that has ended. Raises BuildError for a name that
        is not made of letters, digits, `_`, `.` and `-`, or is in use, and if the run has begun
        already.
        """
        if not isinstance(name, str) or not _NAME.fullmatch(name):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise BuildError(
                f"web_app().add(running, {describe(name)}): a name is part of an address: letters, "
                "digits, _, . and -, and not metrics, healthz, readyz or pipelines"
            )
        before = self._runs.get(name)
        if before is not None:
            if before[0].state != "closed":
                raise BuildError(
                    f"web_app().add(running, {name!r}): a run of this name has not ended: give "
                    "each a name of its own"
                )
            before[2].close()
        app, feed = run_app(running, self._access, title=name, show_values=self._show_values)
        self.collector.add(running, name)
        self._runs[name] = running, app, feed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, as ASGI defines it."""
        await self._app(scope, receive, send)


def _short(numbers: dict[str, Any]) -> dict[str, Any]:
    names = ("state", "in", "finished", "failed", "waiting", "in_flight")
    return {name: numbers[name] for name in names}
