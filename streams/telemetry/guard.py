"""The door of every application about a run: who may come in, and what a browser may do with it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib.resources import files
from typing import TYPE_CHECKING

from penstock.streams.telemetry.access import Access

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

__all__ = ["guarded", "static"]


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


def guarded(
    access: Access,
    call: Callable[[Request], Awaitable[Response]],
    *,
    is_open: bool = False,
    controls: bool = False,
) -> Callable[[Request], Awaitable[Response]]:
    """`call`, for requests that name this server and have the token if they need it.

    `is_open`: nobody needs one; `controls`: everybody does.
    """
    from starlette.responses import PlainTextResponse

    def refused(request: Request) -> Response | None:
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

    async def checked(request: Request) -> Response:
        response = refused(request)
        if response is None:
            response = await call(request)
        response.headers.update(_HEADERS)
        return response

    return checked


def static(name: str, media_type: str) -> Callable[[Request], Awaitable[Response]]:
    """A file of the page."""
    from starlette.responses import Response

    content = files("penstock.streams.telemetry").joinpath("page", name).read_bytes()

    async def send(_: Request) -> Response:
        return Response(content, media_type=media_type)

    return send
