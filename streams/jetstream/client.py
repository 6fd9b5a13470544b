"""The client of NATS, that tells who it is only where it was told that it may."""

from __future__ import annotations

from nats.aio.client import Client
from nats.errors import Error

__all__ = ["StrictClient"]


class StrictClient(Client):
    """Insists on TLS where the address says `tls://`.

    The client as it comes would go on in clear, credentials and all, with a server, or with
    somebody in between, that says it does without.
    """

    def _connect_command(self) -> bytes:
        server = self._current_server
        if server and server.uri.scheme == "tls" and not self._server_info.get("tls_required"):
            raise Error("the server does not speak TLS, on which the address insists by tls://")
        return super()._connect_command()
