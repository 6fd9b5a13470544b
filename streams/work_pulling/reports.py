"""Reports from a worker to masters: each repeated until answered, many in one message."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from orjson import Fragment, dumps

from penstock.streams.io.encoding import encoded
from penstock.streams.runtime.tasks import new_task
from penstock.streams.work_pulling.decoding import KINDS
from penstock.streams.work_pulling.wire import Wire, check_size

if TYPE_CHECKING:
    from penstock.streams.nats.client.client import Client
    from penstock.streams.work_pulling.job_message import RemoteJob

__all__ = ["Reports"]

# Seconds to wait for an answer, and between two attempts.
_PATIENCE, _PAUSE = 2.0, 0.1
# Seconds for which a leaving worker waits for a master.
_PARTING = 1.0
_LARGEST = 512
# Bytes of a report that are not results.
_FRAME = 4096

Known = Callable[[bool], None]
"""Called when the master knows, or is gone."""

_Kind = Literal["returned", "asked", "alone"]


class _Item(NamedTuple):
    kind: str
    content: Any
    size: int
    answered: Known


class Worker(Protocol):
    """The worker that reports."""

    id: str

    @property
    def capacity(self) -> int:
        """How many jobs it could hold."""
        ...

    def announced(self, capacity: int, /) -> None:
        """This capacity is being sent to a master."""


class Reports:
    """Has one task for each epic with pending reports, which ends when all are answered.

    A master that does not answer for the length of a lease counts as gone, with its epic.
    """

    def __init__(self, client: Client, wire: Wire, worker: Worker) -> None:
        self._client = client
        self._wire = wire
        self._worker = worker
        self._largest = client.max_payload - _FRAME
        self._items: dict[str, deque[_Item]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._until: float | None = None

    def hello(self) -> bytes:
        """Announce the worker and its capacity."""
        capacity = self._worker.capacity
        self._worker.announced(capacity)
        return dumps({"worker": self._worker.id, "capacity": capacity})

    def done(self, job: RemoteJob, value: Any, known: Known) -> None:
        """Report a job's result. Raises what encoding it as JSON raises, and PayloadTooLarge."""
        body = encoded(value)
        check_size("a result", body, self._largest)
        content = (job.number, job.generation, Fragment(body))
        self._add(job, "done", content, len(body), known)

    def failed(self, job: RemoteJob, error: BaseException, attempts: int, known: Known) -> None:
        """Report a job that failed for good."""
        text = str(error)[:_FRAME]
        content = (job.number, job.generation, type(error).__name__, text, attempts)
        self._add(job, "failed", content, _FRAME, known)

    def tell(self, kind: _Kind, job: RemoteJob, known: Known) -> None:
        """Report a job that this worker has not done (`returned`), that another one had before
        (`asked`: the master decides about it), or that begins, `alone` here, when this is known."""
        self._add(job, kind, (job.number, job.generation), 0, known)

    def _add(self, job: RemoteJob, kind: str, content: Any, size: int, known: Known) -> None:
        epic = job.parcel.epic
        self._items.setdefault(epic, deque()).append(_Item(kind, content, size, known))
        if epic not in self._tasks:
            self._tasks[epic] = new_task(self._send(epic), f"penstock reports to {epic}")

    async def _send(self, epic: str) -> None:
        items = self._items[epic]
        while items:
            batch: list[_Item] = []
            size = 0
            while items and len(batch) < _LARGEST and size + items[0].size <= self._largest:
                batch.append(items.popleft())
                size += batch[-1].size
            known = await self._deliver(epic, batch)
            for item in batch:
                item.answered(known)
        del self._items[epic], self._tasks[epic]

    async def _deliver(self, epic: str, batch: list[_Item]) -> bool:
        """Send until answered; returns whether the master knows now, else it is gone."""
        from nats.errors import Error

        loop = asyncio.get_running_loop()
        until = loop.time() + self._wire.lease
        while True:
            try:
                await self._client.request(
                    self._wire.reports(epic), self._report(batch), timeout=_PATIENCE
                )
                return True
            except (Error, TimeoutError):
                if loop.time() > min(until, until if self._until is None else self._until):
                    return False
            await asyncio.sleep(_PAUSE)

    def _report(self, batch: list[_Item]) -> bytes:
        capacity = self._worker.capacity
        self._worker.announced(capacity)
        report: dict[str, Any] = {"worker": self._worker.id, "capacity": capacity}
        for kind in KINDS:
            report[kind] = [item.content for item in batch if item.kind == kind]
        return dumps(report)

    async def flush(self) -> None:
        """Send the pending reports, for a moment at most."""
        self._until = asyncio.get_running_loop().time() + _PARTING
        while self._tasks:
            await asyncio.gather(*self._tasks.values())
