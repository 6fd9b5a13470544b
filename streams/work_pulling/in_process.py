"""Work pulling within one process: masters and workers exchange jobs by plain calls."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.streams.base.errors import PoolBusy
from penstock.streams.protocol.event import Ending, Event
from penstock.streams.protocol.stage import Subscriber
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.stages.source_stage import BaseSourceStage

if TYPE_CHECKING:
    from penstock.streams.failures.policy import DeadLetter
    from penstock.streams.work_pulling.offering import Offering

__all__ = ["InProcessMaster", "InProcessPool", "InProcessWorker"]


class InProcessPool:
    """Masters and workers of a pool. Only returned jobs for which no worker has room wait here.

    Workers are served round-robin. The first master is active, the others wait.
    """

    def __init__(self, name: str, attempts: int) -> None:
        self.name = name
        self.attempts = attempts
        self._masters: deque[InProcessMaster] = deque()
        self._workers: deque[InProcessWorker] = deque()
        self._waiting: deque[_Job] = deque()

    # Masters.

    def enter(self, master: InProcessMaster, *, patient: bool) -> None:
        """A master begins; PoolBusy for a second one that is not `patient`."""
        if self._masters and not patient:
            raise PoolBusy(
                f"the work pool '{self.name}' has an epic under way already; wait for its end, or "
                'offer(..., when_busy="wait") to be next'
            )
        self._masters.append(master)

    def leave(self, master: InProcessMaster) -> None:
        """A master has ended; the next one begins."""
        if master in self._masters:
            self._masters.remove(master)
        self._waiting = deque(job for job in self._waiting if job.master is not master)
        if self._masters:
            self._masters[0].begin()

    def is_active(self, master: InProcessMaster) -> bool:
        """Whether its jobs are handed out now."""
        return bool(self._masters) and self._masters[0] is master

    def room_for(self, master: InProcessMaster) -> int:
        """The workers' demand, if this master is the active one."""
        if not self.is_active(master):
            return 0
        return sum(worker.demand for worker in self._workers) - len(self._waiting)

    def hand_out(self, job: _Job) -> None:
        """Give a job to the next worker with demand."""
        for _ in range(len(self._workers)):
            worker = self._workers[0]
            self._workers.rotate(-1)
            if worker.demand:
                worker.bring(job)
                return
        self._waiting.append(job)

    # Workers.

    @property
    def workers(self) -> int:
        """How many there are."""
        return len(self._workers)

    def join(self, worker: InProcessWorker) -> None:
        """A worker joins."""
        self._workers.append(worker)

    def part(self, worker: InProcessWorker) -> None:
        """A worker leaves."""
        if worker in self._workers:
            self._workers.remove(worker)
            if self._masters:
                # Soon: the worker is still about to return its jobs.
                self._masters[0].begin()

    def wanted(self) -> None:
        """Workers have more room."""
        waiting = self._waiting
        while waiting and any(worker.demand for worker in self._workers):
            self.hand_out(waiting.popleft())
        if self._masters:
            self._masters[0].offering.look()

    def came_back(self, job: _Job, error: BaseException | None) -> bool:
        """A worker ended without finishing a job: another worker gets it, unless it has used up its
        attempts.

        Returns whether it failed for good.
        """
        job.attempts += error is not None
        if isinstance(error, Exception) and job.attempts >= self.attempts:
            job.master.offering.failed(job.number, error, job.attempts)
            return True
        if job.master in self._masters:
            self.hand_out(job)
        return False


class InProcessMaster:
    """The dispatcher of one run of a master."""

    offering: Offering

    def __init__(self, pool: InProcessPool, *, patient: bool) -> None:
        self._pool = pool
        self._patient = patient

    @property
    def room(self) -> int:
        return self._pool.room_for(self)

    @property
    def workers(self) -> int:
        return self._pool.workers

    @property
    def waits_for(self) -> str:
        if not self._pool.is_active(self):
            return f"the end of another epic in the work pool '{self._pool.name}'"
        if self.workers:
            return ""
        return f"a worker: no pipeline of work(...) in the work pool '{self._pool.name}' is running"

    def open(self, offering: Offering) -> None:
        self.offering = offering
        self._pool.enter(self, patient=self._patient)

    def hand_out(self, number: int, event: Event[Any]) -> None:
        self._pool.hand_out(_Job(self, number, event.value))

    def over(self, number: int) -> None:
        pass

    def close(self) -> None:
        self._pool.leave(self)

    def begin(self) -> None:
        """This master becomes the active one, or its workers have become fewer."""
        self.offering.call_soon(self.offering.look)


@dataclass(eq=False, slots=True)
class _Job:
    """A job, and the worker that has it."""

    master: InProcessMaster
    number: int
    value: Any
    attempts: int = 0
    source: InProcessWorker = field(init=False)

    def __str__(self) -> str:
        return f"job {self.number}"


class InProcessWorker(BaseSourceStage):
    """The jobs of one run of a worker, as its source. It never ends by itself."""

    def __init__(
        self, downstream: Subscriber[Any], run: Run, info: StageInfo, pool: InProcessPool
    ) -> None:
        super().__init__(downstream, run, info)
        self.nack = self._came_back
        self._pool = pool
        self._joined = False

    def produce(self) -> None:
        if not self._joined:
            self._joined = True
            self._pool.join(self)
        self._pool.wanted()

    def bring(self, job: _Job) -> None:
        """Deliver a requested job."""
        job.source = self
        self.emit(job.value, self.run.now(), job)

    def release(self) -> None:
        self._pool.part(self)

    def succeeded(self, event: Event[Any], reported: Callable[[], None]) -> None:
        job: _Job = event.token
        job.master.offering.succeeded(job.number, event.value)
        event.finish()
        reported()

    def failed_for_good(self, event: Event[DeadLetter], reported: Callable[[], None]) -> None:
        job: _Job = event.token
        letter = event.value
        error = letter.error
        assert isinstance(error, Exception)
        job.master.offering.failed(job.number, error, letter.attempts)
        event.finish()
        reported()

    def settle(self, events: list[Event[Any]], ending: Ending, why: Any, /) -> None:
        if ending not in (Ending.FORGIVEN, Ending.FAILED):
            super().settle(events, ending, why)
            return
        for event in events:
            for_good = ending is Ending.FORGIVEN or self._pool.came_back(event.token, why)
            self.count_failures(1, for_good)

    def _came_back(self, events: list[Event[Any]], error: BaseException | None) -> None:
        for event in events:
            self._pool.came_back(event.token, error)
