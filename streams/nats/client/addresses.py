"""Parses the addresses of NATS servers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from penstock.streams.base.errors import BuildError
from penstock.streams.base.validation import texts_of

__all__ = ["Servers", "addresses_of", "shown"]

Servers = str | Sequence[str]

_WANTED = "give the addresses of NATS servers, as in 'nats://localhost:4222' or 'nats://a,b,c'"

_SCHEMES = ("nats://", "tls://", "ws://", "wss://")


def addresses_of(servers: Servers) -> tuple[str, ...]:
    """The addresses in `"nats://a,b,c"`, or in a list of such texts. Raises BuildError if there is
    none.

    The scheme and the user of the first address apply to all others that name none.
    """
    if isinstance(cast(Any, servers), str):
        servers = cast(str, servers).split(",")
    elif not (servers := texts_of(servers)):
        raise BuildError(f"servers: no texts were given; {_WANTED}")
    given = [_parts(one.strip()) for one in servers if one.strip()]
    first_scheme, first_user, _ = given[0] if given else ("", "", "")
    addresses = tuple(
        f"{scheme or first_scheme or 'nats://'}{user or first_user}{host}"
        for scheme, user, host in given
    )
    wrong = [one for one in addresses if not one.startswith(_SCHEMES)]
    if not addresses or wrong or not all(host for _, _, host in given):
        raise BuildError(f"servers={shown(servers)!r}: {_WANTED}")
    return addresses


def shown(addresses: Sequence[str]) -> str:
    """The addresses without the passwords in them."""
    return ", ".join(
        f"{scheme}{'***@' if user else ''}{host}" for scheme, user, host in map(_parts, addresses)
    )


def _parts(address: str) -> tuple[str, str, str]:
    """The scheme with its slashes, the user with the @, and the rest."""
    scheme, slashes, rest = address.partition("://") if "://" in address else ("", "", address)
    user, at, host = rest.rpartition("@")
    return scheme + slashes, user + at, host
