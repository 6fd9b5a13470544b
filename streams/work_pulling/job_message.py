"""Parcels: messages with one or several jobs for a worker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orjson import loads

from penstock.streams.delivery.lease import Lease
from penstock.streams.nats.streams.leases import Leased
from penstock.streams.work_pulling.wire import ALONE

if TYPE_CHECKING:
    from penstock.streams.nats.client.message import Message
    from penstock.streams.work_pulling.working import JobSource

__all__ = ["Parcel", "RemoteJob", "jobs_in"]

# The number of tokens of a parcel's subject; the last two are its epic and its number.
_WORDS = 6


def jobs_in(message: Message) -> list[tuple[int, int, Any]]:
    """The number of each job, how often it went out before, and its value; raises ValueError for a
    message that is not a master's."""
    if len(message.subject.split(".")) != _WORDS:
        raise ValueError("its subject names no epic")
    jobs: Any = loads(message.data)
    if jobs.__class__ is not list or not jobs or not all(map(_is_job, jobs)):
        raise ValueError("it does not list jobs")
    return jobs


def _is_job(one: Any) -> bool:
    match one:
        case [int(), int(), _]:
            return True
        case _:
            return False


class Parcel(Leased):
    """A message with jobs; it is acknowledged when none of them is `open` any more. The job of one
    that `is_alone` is done beside no other."""

    __slots__ = ("epic", "is_alone", "known", "open", "subject")

    def __init__(self, message: Message, jobs: int, lease: Lease) -> None:
        super().__init__(message.reply, lease)
        self.subject = message.subject
        self.epic, number = message.subject.split(".")[-2:]
        self.is_alone = number.startswith(ALONE)
        self.open = jobs
        self.known = True


@dataclass(eq=False, slots=True)
class RemoteJob:
    """A job of a parcel; `generation` is how often it went out before."""

    source: JobSource
    parcel: Parcel
    number: int
    generation: int
    value: Any

    def __str__(self) -> str:
        return f"job {self.number} of the epic {self.parcel.epic}"
