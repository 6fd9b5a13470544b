"""Jobs as they reach a worker: several in a message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streams.jetstream.message import Message
    from streams.work.desk import RemoteDesk

__all__ = ["Parcel", "RemoteJob"]


class Parcel:
    """A message with jobs; it is acknowledged when nothing of it is `open` any more."""

    __slots__ = ("epic", "known", "open", "reply", "subject")

    def __init__(self, message: Message, jobs: int) -> None:
        self.subject = message.subject
        self.epic = message.subject.split(".")[-2]
        self.reply = message.reply
        self.open = jobs
        self.known = True


class RemoteJob:
    """A job of a parcel; `generation` is how often it went out before."""

    __slots__ = ("desk", "generation", "number", "parcel", "value")

    def __init__(
        self, desk: RemoteDesk, parcel: Parcel, number: int, generation: int, value: Any
    ) -> None:
        self.desk = desk
        self.parcel = parcel
        self.number = number
        self.generation = generation
        self.value = value

    def __str__(self) -> str:
        return f"job {self.number} of the epic {self.parcel.epic}"
