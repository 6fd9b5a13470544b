"""The interface between a master and its workers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from penstock.streams.protocol.event import Event

if TYPE_CHECKING:
    from penstock.streams.failures.policy import DeadLetter
    from penstock.streams.work_pulling.offering import Offering

__all__ = ["Desk", "Job", "Office"]


class Office(Protocol):
    """Hands out the jobs of one master; its `Offering` notifies it of demand for results.

    It calls `look` when there may be more room, and `succeeded`, `failed` or `withdrawn` once for
    each job, by its number; `stop` when it cannot go on.
    """

    @property
    def room(self) -> int:
        """How many jobs workers have requested beyond those that are handed out."""
        ...

    @property
    def workers(self) -> int:
        """How many workers there are."""
        ...

    @property
    def waits_for(self) -> str:
        """Without what no job can be handed out, in words that follow "waits for"; "" if nothing
        is missing."""
        ...

    def open(self, offering: Offering) -> None:
        """Start handing out."""

    def hand_out(self, number: int, event: Event[Any]) -> None:
        """Give a job to a worker."""

    def over(self, number: int) -> None:
        """A job is done, or has failed for good."""

    def close(self) -> None:
        """The epic is over; results of jobs that are still out are ignored."""


class Desk(Protocol):
    """Supplies the jobs of one worker, and takes their outcomes."""

    def succeeded(self, event: Event[Any], reported: Callable[[], None]) -> None:
        """Report the value of a job's event; when the master knows, finish the event and call
        `reported`."""

    def failed_for_good(self, event: Event[DeadLetter], reported: Callable[[], None]) -> None:
        """The same for a job that failed for good."""


class Job(Protocol):
    """The token of a job's event."""

    @property
    def desk(self) -> Desk:
        """The worker that has the job."""
        ...
