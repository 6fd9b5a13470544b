"""The interface of a worker: where its jobs come from, and what becomes of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from penstock.streams.protocol.event import Event

if TYPE_CHECKING:
    from penstock.streams.failures.policy import DeadLetter

__all__ = ["Desk", "Job"]


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
