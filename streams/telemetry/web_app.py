"""The live page, metrics and health of one run, as an ASGI application."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib.resources import files
from typing import TYPE_CHECKING, Any, cast

from penstock.streams.base.extras import missing_extra
from penstock.streams.telemetry.access import Access
from penstock.streams.telemetry.document import Document
from penstock.streams.telemetry.feed import Feed, Fleet

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

    from penstock.streams.running.handle import Handle

__all__ = ["web_app"]

# Nothing is loaded from elsewhere, and nothing of this is shown inside another page.
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}

_FILES = {
    "/": ("index.html", "text/html"),
    "/page.js": ("page.js", "text/javascript"),
    "/page.css": ("page.css", "text/css"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}


def web_app(
    running: Handle,
    access: Access,
    *,
    title: str | None,
    show_values: bool,
    fleet: Fleet | None = None,
) -> tuple[Starlette, Feed]:
    """The application, and the feed of its pages, which ends by `close`.

    It belongs on the loop of the running. Raises MissingExtra, and BuildError if the running has
    begun already and is not recorded.
    """
    try:
        from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST
        from starlette.applications import Starlette
        from starlette.requests import ClientDisconnect
        from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
        from starlette.routing import Route
    except ImportError as error:
        raise missing_extra(
            "The live page needs starlette and prometheus-client", "serve"
        ) from error
    from penstock.streams.telemetry.metrics import exposition

    recorder = running.record()
    document = Document(running, recorder, title, show_values)
    feed = Feed(document, recorder, fleet)

    def answer(
        call: Callable[[Request], Awaitable[Response]],
        *,
        is_open: bool = False,
        controls: bool = False,
    ) -> Callable[[Request], Awaitable[Response]]:
        async def checked(request: Request) -> Response:
            response = _refused(request, is_open=is_open, controls=controls)
            if response is None:
                response = await call(request)
            response.headers.update(_HEADERS)
            return response

        return checked

    def _refused(request: Request, *, is_open: bool, controls: bool) -> Response | None:
        server = request.scope.get("server")
        if not access.is_for_us(request.headers.get("host"), server and server[0]):
            return PlainTextResponse(
                "this name is not one of this server's; name it with --host, or in a program by "
                "hosts= of serve() or web_app()\n",
                421,
            )
        if is_open or not (controls or access.needs_token):
            return None
        if not access.is_authorized(request.headers.get("authorization")):
            return PlainTextResponse("a token is needed\n", 401, {"WWW-Authenticate": "Bearer"})
        return None

    def static(name: str, media_type: str) -> Callable[[Request], Awaitable[Response]]:
        content = files("penstock.streams.telemetry").joinpath("page", name).read_bytes()

        async def send(_: Request) -> Response:
            return Response(content, media_type=media_type)

        return send

    async def stream(request: Request) -> Response:
        media_type = "application/x-ndjson"
        if request.method == "HEAD":
            # The stream would go on unseen, and the connection could not be used again.
            return Response(media_type=media_type)
        return StreamingResponse(feed.lines(), media_type=media_type)

    async def metrics(_: Request) -> Response:
        text = exposition(running.statistics(), recorder, show_values=show_values)
        return Response(text, media_type=CONTENT_TYPE_LATEST)

    async def may(request: Request) -> Response:
        is_known = access.is_authorized(request.headers.get("authorization"))
        return JSONResponse(
            {"control": access.allows_control, "authorized": is_known or not access.needs_token}
        )

    async def control(request: Request) -> Response:
        if not access.allows_control:
            return PlainTextResponse(
                "started without --allow-control, in a program allow_control=True\n", 403
            )
        if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            return PlainTextResponse("the content type must be application/json\n", 415)
        try:
            wanted: Any = await request.json()
        except (ValueError, RecursionError, ClientDisconnect):
            wanted = None
        do = cast(dict[str, Any], wanted).get("do") if isinstance(wanted, dict) else None
        if do == "pause":
            running.pause()
        elif do == "resume":
            running.resume()
        elif do == "drain":
            running.begin_drain(by_signal=True)
        else:
            return PlainTextResponse('send {"do": "pause"}, "resume" or "drain"\n', 400)
        return JSONResponse({"state": running.state})

    async def health(_: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def ready(_: Request) -> Response:
        return PlainTextResponse("ready\n") if running.is_ready else PlainTextResponse("no\n", 503)

    routes = [
        *(Route(path, answer(static(*file), is_open=True)) for path, file in _FILES.items()),
        Route("/stream", answer(stream)),
        Route("/metrics", answer(metrics)),
        Route("/may", answer(may, is_open=True)),
        Route("/control", answer(control, controls=True), methods=["POST"]),
        Route("/healthz", answer(health, is_open=True)),
        Route("/readyz", answer(ready, is_open=True)),
    ]
    app = Starlette(routes=routes)
    # It would answer with an address made of `Host`, whatever that is.
    app.router.redirect_slashes = False
    return app, feed
