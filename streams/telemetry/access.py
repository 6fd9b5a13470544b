"""Access control: who may see a live page, and who may control a pipeline through it.

On the loopback interface everybody on the machine may look; elsewhere a token is needed, and to
control it is needed everywhere. It is sent as `Authorization: Bearer`, never in a query, where logs
and histories would keep it. A page of another site that has its name resolve to this machine (DNS
rebinding) is told apart by `Host`.
"""

from __future__ import annotations

import hmac
import ipaddress
import re
import secrets
import socket
from dataclasses import dataclass, field

from penstock.streams.base.errors import BuildError
from penstock.streams.base.validation import is_text

__all__ = ["Access", "is_any", "is_loopback", "new_token"]


def new_token() -> str:
    """A token that cannot be guessed: 128 random bits."""
    return secrets.token_urlsafe(16)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def is_any(host: str) -> bool:
    """Whether a server with this address listens on all addresses of the machine."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_unspecified
    except ValueError:
        return False


@dataclass(frozen=True)
class Access:
    """What a server allows. `host` is the address that it listens on, `hosts` further names.

    Raises BuildError for a token that no request can send.
    """

    host: str
    token: str | None = field(default=None, repr=False)
    allows_control: bool = False
    hosts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not (
            isinstance(self.host, str)  # pyright: ignore[reportUnnecessaryIsInstance]
            and isinstance(self.hosts, tuple)  # pyright: ignore[reportUnnecessaryIsInstance]
            and all(map(is_text, self.hosts))
        ):
            raise BuildError(
                f"host={self.host!r}, hosts={self.hosts!r}: give an address, and a tuple of names"
            )
        if not (self.token is None or isinstance(self.token, str)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise BuildError(f"token={self.token!r}: give a text")
        if not isinstance(self.allows_control, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise BuildError(f"allow_control={self.allows_control!r}: give True or False")
        if self.token is not None and (not self.token or self.token != self.token.strip()):
            raise BuildError(
                "the token of the live page is empty or has white space around it, which no header "
                "can have: give another one (in the shell by PENSTOCK_TOKEN)"
            )

    @property
    def needs_token(self) -> bool:
        """Whether looking needs the token."""
        return not is_loopback(self.host)

    def is_authorized(self, header: str | None) -> bool:
        """Whether the `Authorization` header of a request has the token."""
        kind, _, given = (header or "").partition(" ")
        if self.token is None or kind.lower() != "bearer":
            return False
        return hmac.compare_digest(given.strip().encode(), self.token.encode())

    def is_for_us(self, header: str | None, address: str | None) -> bool:
        """Whether a request's `Host` names this server, whose own address in it is `address`."""
        name = _name(header or "")
        if name is None:
            return False
        # One of our hosts may be given with a port, or as an IPv6 address without brackets.
        if name in {_name(host) or host.lower() for host in (self.host, *self.hosts)}:
            return True
        if is_loopback(self.host):
            return is_loopback(name)
        # A foreign site has none of these names, whatever address its own name resolves to.
        if is_any(self.host) and (is_loopback(name) or name == socket.gethostname().lower()):
            return True
        return address is not None and name == address.strip("[]")


# Any port is accepted: a proxy, a published port of a container or a tunnel has another one than
# we listen on, and a site whose name resolves to this machine does not get one of our names by a
# port.
# RFC 9110, 4.2.3 and 7.2: the port may be empty.
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^][:@,/\s]+)(?::[0-9]*)?", re.IGNORECASE)


def _name(header: str) -> str | None:
    """The host in a `Host` header, without brackets and in lower case; None if it is not one."""
    found = _HOST.fullmatch(header)
    return found and found[1].strip("[]").lower()
