"""A message as it stands on the wire."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Message", "fields_of"]


class Message(NamedTuple):
    """What a server sends; `header` as it stands on the wire, empty without one."""

    subject: str
    reply: str
    header: bytes
    data: bytes


def fields_of(header: bytes) -> dict[str, str]:
    """The fields of a message's header, and its `Status` if it is about a request."""
    first, *lines = header.decode("utf-8", "replace").splitlines()
    _, _, status = first.partition(" ")
    fields = {"Status": status[:3]} if status else {}
    for line in lines:
        name, _, value = line.partition(":")
        if name:
            fields[name] = value.strip()
    return fields
