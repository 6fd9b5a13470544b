"""Database URLs without their passwords, for messages."""

from __future__ import annotations

import re
from typing import Any

__all__ = ["redacted"]

_PASSWORD = re.compile(r"(^\w+://[^/?#:@]*:)[^/?#]*(?=@)|([?&]password=)[^&]*")


def redacted(url: Any) -> str:
    """A URL without its password, for display."""
    if not isinstance(url, str):
        return repr(url)
    return _PASSWORD.sub(r"\1\2***", url)
