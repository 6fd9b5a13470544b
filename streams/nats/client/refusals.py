"""Classifies refusals: whether a refused message may be retried, and which right a user lacks.

Source: `server/errors.json` of nats-server 2.15, and the handling of a published message there, in
`processClusteredInboundMsg` and `processJetStreamMsg`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from penstock.streams.base.errors import RightsMissing

__all__ = ["Refusal", "refusal_of", "rights_missing"]

Refusal = Literal["final", "not stored", "perhaps stored"]
"""Final: every further attempt would be refused in the same way. The other two are transient."""

# An earlier attempt with the same id is not decided yet.
_IN_PROCESS = 10158
# Limits of the account or of the server, checked before anything is stored, until others delete.
# And a server whose queue is full.
_NO_ROOM = frozenset({10002, 10028, 10047, 10167})
# The stream's store: only the description gives the reason.
_STORE_FAILED = 10077
_FULL = frozenset({"maximum bytes exceeded", "maximum messages exceeded"})
_NEVER = frozenset({"maximum messages per subject exceeded", "message too large"})
# A rollup that the stream does not permit.
_ROLLUP = 10111


def refusal_of(error: Mapping[str, Any]) -> Refusal:
    """The meaning of the `error` in a server's answer to a published message.

    An unknown code is judged by its class, as in HTTP: an error of the message is permanent, an
    error of the server may be transient.
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
    """The error for a missing right, with the server's message `text`."""
    return RightsMissing(
        f"The NATS server refuses {what} ({text}). Give the user permission to {rights}."
    )
