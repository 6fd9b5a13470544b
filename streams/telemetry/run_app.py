"""The live page, metrics and health of one run, as an ASGI application."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from penstock.streams.base.extras import missing_extra
from penstock.streams.telemetry.access import Access
from penstock.streams.telemetry.document import Document
from penstock.streams.telemetry.feed import Feed, Fleet
from penstock.streams.telemetry.guard import guarded, static

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

    from penstock.streams.running.handle import Handle

__all__ = ["run_app"]

_FILES = {
    "/": ("index.html", "text/html"),
    "/page.js": ("page.js", "text/javascript"),
    "/page.css": ("page.css", "text/css"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}


def run_app(
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
        import prometheus_client as _  # noqa: F401
        from starlette.applications import Starlette
        from starlette.requests import ClientDisconnect
        from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
        from starlette.routing import Route
    except ImportError as error:
        raise missing_extra(
            "The live page needs starlette and prometheus-client", "serve"
        ) from error
    from penstock.streams.telemetry.collector import Collector

    recorder = running.record()
    document = Document(running, recorder, title, show_values)
    feed = Feed(document, recorder, fleet)
    collector = Collector(show_values=show_values)
    collector.add(running, title or "")

    async def stream(request: Request) -> Response:
        media_type = "application/x-ndjson"
        if request.method == "HEAD":
            # The stream would go on unseen, and the connection could not be used again.
            return Response(media_type=media_type)
        return StreamingResponse(feed.lines(), media_type=media_type)

    async def metrics(request: Request) -> Response:
        text, media_type = collector.exposition(request.headers.get("accept", ""))
        return Response(text, media_type=media_type)

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
        *(
            Route(path, guarded(access, static(*file), is_open=True))
            for path, file in _FILES.items()
        ),
        Route("/stream", guarded(access, stream)),
        Route("/metrics", guarded(access, metrics)),
        Route("/may", guarded(access, may, is_open=True)),
        Route("/control", guarded(access, control, controls=True), methods=["POST"]),
        Route("/healthz", guarded(access, health, is_open=True)),
        Route("/readyz", guarded(access, ready, is_open=True)),
    ]
    app = Starlette(routes=routes)
    # It would answer with an address made of `Host`, whatever that is.
    app.router.redirect_slashes = False
    return app, feed
