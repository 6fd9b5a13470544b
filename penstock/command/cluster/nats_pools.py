"""Work pools: the text of `penstock status`, and another try of jobs that failed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from orjson import loads

from penstock.command.cluster.broker import Stored
from penstock.command.output import counted, mention
from penstock.streams.base.errors import EventOmitted
from penstock.streams.runtime.process.os_signals import drain_on_signals
from penstock.streams.work_pulling.view import Epic, PoolView

__all__ = ["offer_again", "pool_as_text"]

# Seconds for jobs that are out when a signal comes.
_DEADLINE = 20.0


def pool_as_text(view: PoolView) -> str:
    """A few lines."""
    letters = counted(view.letters, "dead letter")
    queue = f"  parcels of jobs: {view.waiting:,} in the queue, {view.held:,} at workers"
    epic = view.epic
    if epic is None:
        return "\n".join([f"work pool {view.name}: no epic under way, {letters}", queue, ""])
    rate = epic.done / epic.seconds if epic.seconds else 0.0
    lines = [
        f"work pool {view.name}: epic {epic.epic} under way for {epic.seconds:,.0f} s, "
        f"{counted(epic.done, 'job')} done ({rate:,.0f}/s), {epic.failed:,} failed, {epic.out:,} "
        f"out, {letters}",
        f"  {counted(epic.workers, 'worker')} with room for {counted(epic.capacity, 'job')}"
        + _use(epic),
        queue,
        "",
    ]
    return "\n".join(lines)


def _use(epic: Epic) -> str:
    """How busy the workers are, and whether more or fewer of them would pay."""
    if epic.busy is None:
        return ""
    text = f", {epic.busy:.0%} busy"
    if epic.gain is not None:
        text += f"; the last change of their number brought {epic.gain:.0%} of a worker's share"
    if epic.pays is not None and epic.pays > epic.workers:
        text += "; another would pay"
    elif epic.pays is not None and epic.pays < epic.workers:
        text += f"; {epic.pays} would do"
    return text


async def offer_again(urls: tuple[str, ...], pool: str, letters: AsyncIterator[Stored]) -> int:
    """Offer the jobs as an epic, and delete their letters when it is over; returns the exit status.

    Results are printed as JSON lines. A job that fails again is a new letter.
    """
    from penstock.sinks.jsonl import write_jsonl
    from penstock.sources.work import WorkPool
    from penstock.streams.pipelines.from_iterable import from_async_iterable

    delete: list[Callable[[], Awaitable[object]]] = []
    omitted = 0

    async def jobs() -> AsyncIterator[Any]:
        nonlocal omitted
        async for letter, done in letters:
            try:
                job = loads(letter.event())
            except EventOmitted as error:
                mention(str(error))
                omitted += 1
                continue
            delete.append(done)
            yield job

    running = WorkPool(urls, pool).offer(from_async_iterable(jobs)).to(write_jsonl()).start()
    with drain_on_signals(running, _DEADLINE, mention):
        report = await running.wait()
    if report.outcome != "completed":
        mention("not all jobs were done: their dead letters are kept")
        return report.exit_status
    for letter in delete:
        await letter()
    failed = report.statistics["failed"]
    mention(f"{counted(len(delete), 'job')} offered again, {failed:,} failed again")
    return report.exit_status or min(1, omitted)
