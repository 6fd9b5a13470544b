"""What a server's refusal of a message means for the next try, and of a right for the user.

Source: `server/errors.json` of nats-server 2.15, and there the ways of a published message through
`processClusteredInboundMsg` and `processJetStreamMsg`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from streams.errors import RightsMissing

__all__ = ["Refusal", "refusal_of", "rights_missing"]

Refusal = Literal["final", "not stored", "perhaps stored"]
"""Final: every other try would be answered in the same way. The other two pass with time."""

# An earlier try with the same id is not decided yet.
_IN_PROCESS = 10158
# Limits of the account or of the server, which are looked at before anything is stored; room comes
# when others delete. And a server that is asked more than it can queue.
_NO_ROOM = frozenset({10002, 10028, 10047, 10167})
# The stream's store: the description alone says why.
_STORE_FAILED = 10077
_FULL = frozenset({"maximum bytes exceeded", "maximum messages exceeded"})
_NEVER = frozenset({"maximum messages per subject exceeded", "message too large"})
# A rollup that the stream does not permit.
_ROLLUP = 10111


def refusal_of(error: Mapping[str, Any]) -> Refusal:
    """The meaning of the `error` in a server's answer to a published message.

    A code that is not known here is judged by its class, as in HTTP: what is wrong with the message
    stays wrong, and what is wrong with the server may pass.
    """
    code = error.get("err_code")
    if code in _NO_ROOM:
        return "not stored"
    if code == _STORE_FAILED:
        text = error.get("description")
        if text in _NEVER:
            return "final"
        return "not stored" if text in _FULL else "perhaps stored"
    if code == _ROLLUP:
        return "final"
    if code == _IN_PROCESS or int(error.get("code") or 0) >= 500:
        return "perhaps stored"
    return "final"


def rights_missing(what: str, text: str, rights: str) -> RightsMissing:
    """The error for what a server refuses to this user, in the words of `text`."""
    return RightsMissing(
        f"The NATS server refuses {what} ({text}). Give the user permission to {rights}."
    )
