"""Where the servers are, as a user says it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from streams.errors import BuildError

__all__ = ["Servers", "addresses_of"]

Servers = str | Sequence[str]

_SCHEMES = ("nats://", "tls://", "ws://", "wss://")


def addresses_of(servers: Servers) -> tuple[str, ...]:
    """The addresses in `"nats://a,b,c"`, or in a list of such; BuildError where there is none."""
    if isinstance(cast(Any, servers), str):
        servers = cast(str, servers).split(",")
    addresses = tuple(
        one.strip() if "://" in one else f"nats://{one.strip()}" for one in servers if one.strip()
    )
    wrong = [one for one in addresses if not one.startswith(_SCHEMES) or one.endswith("://")]
    if not addresses or wrong:
        raise BuildError(
            f"servers={servers!r}: give the addresses of NATS servers, as in "
            "'nats://localhost:4222' or 'nats://a,b,c'"
        )
    return addresses
