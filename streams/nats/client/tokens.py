"""Texts as tokens of subjects."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from hashlib import sha256

__all__ = ["token_of"]

# Characters of a token. A server closes the connection for a line of more than 4,096 bytes,
# including the subject and the reply subject.
_LONGEST = 128


def token_of(text: bytes) -> str:
    """base64url of a text without padding or, for a long one, "=" and base64url of its SHA-256."""
    encoded = urlsafe_b64encode(text)
    if len(encoded) <= _LONGEST:
        return encoded.rstrip(b"=").decode("ascii")
    return "=" + urlsafe_b64encode(sha256(text).digest()).rstrip(b"=").decode("ascii")
