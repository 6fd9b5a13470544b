"""Messages and their headers on the wire."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

__all__ = ["Message", "fields_of", "header_with"]


class Message(NamedTuple):
    """A received message; `header` as it is on the wire, empty if there is none."""

    subject: str
    reply: str
    header: bytes
    data: bytes


def header_with(fields: Mapping[str, str]) -> bytes:
    """A message's header with these fields."""
    lines = [f"{name}: {value}\r\n" for name, value in fields.items()]
    return f"NATS/1.0\r\n{''.join(lines)}\r\n".encode()


def fields_of(header: bytes) -> dict[str, str]:
    """The fields of a message's header, and its `Status` if it answers a request."""
    first, *lines = header.decode("utf-8", "replace").splitlines() or [""]
    _, _, status = first.partition(" ")
    fields = {"Status": status[:3]} if status else {}
    for line in lines:
        name, _, value = line.partition(":")
        if name:
            fields[name] = value.strip()
    return fields
