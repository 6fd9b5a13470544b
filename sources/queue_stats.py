"""Measure a queue in a database table at regular intervals.

Items:   a `QueueStats` for each measurement: rows by state, rates, and percentiles of waiting and
         service times, over the last `window` seconds; also per poller. `write_jsonl` can write
         them as they are.
Time:    the first measurement is at once, each further one `every` seconds after the beginning of
         the last. It takes longer the more rows the table has, and locks nothing; if it takes
         longer than `every`, the next begins at once.
Memory:  the numbers of one measurement.
Demand:  one measurement for each requested event; those without demand in time are skipped.
Ends:    never; drain and cancel end the wait.
Errors:  a missing database or table is CannotOpen or TableMissing, a missing column ColumnMissing,
         at the start. While the database is unavailable nothing is emitted; after `patience`
         seconds it is DatabaseUnavailable.

    time          012345678
    queue_stats   a---b---c     every=4
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING

from penstock.streams.base.clock import clock_of
from penstock.streams.base.errors import BuildError, DatabaseUnavailable
from penstock.streams.base.recorded import recorded
from penstock.streams.base.validation import is_positive
from penstock.streams.boundary.from_iterable import Pulling
from penstock.streams.boundary.once import Reading
from penstock.streams.pipelines.flowable import Flowable
from penstock.streams.protocol.stage import Subscriber
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.runtime.tasks import cancellable
from penstock.streams.sql_queue.schema import Required
from penstock.streams.stages.source_stage import source

if TYPE_CHECKING:
    from penstock.streams.sql_queue.analytics.statistics import QueueStats

__all__ = ["queue_stats"]


@recorded
@source
def queue_stats(
    url: str,
    table: str = "queue",
    *,
    columns: Mapping[str, str] | None = None,
    beside: bool = False,
    every: float = 10.0,
    window: float = 60.0,
    patience: float = 60.0,
) -> Flowable[QueueStats]:
    """Measure the queue of `read_table` with the same first arguments every `every` seconds.

    Raises BuildError for invalid options, MissingExtra if PostgreSQL's package is not installed.

    >>> from penstock import for_each, queue_stats
    >>> print(queue_stats("sqlite:///orders.db", "orders", every=60).to(for_each(print)))
    <Pipeline queue_stats > for_each>
    """
    # Imported here: most pipelines read or write no database.
    from penstock.streams.sql_queue import DatabaseLost, open_store, redacted
    from penstock.streams.sql_queue.analytics.statistics import measure

    for option, value in (("every", every), ("window", window), ("patience", patience)):
        if not is_positive(value):
            raise BuildError(f"queue_stats({option}={value!r}): positive seconds are needed")
    open_store(url, table, columns, beside=beside)

    async def looks() -> AsyncIterator[QueueStats]:
        store = open_store(url, table, columns, beside=beside)
        now = clock_of(asyncio.get_running_loop())
        try:
            there = False
            reached = now()
            while True:
                began = now()
                try:
                    if not there:
                        await store.open(Required(make=False))
                        there = True
                    stats = await cancellable(measure(store, window))
                except DatabaseLost as error:
                    if now() - reached >= patience:
                        raise DatabaseUnavailable(
                            f"{redacted(url)} could not be measured for {patience:g} s: {error}."
                        ) from error
                else:
                    reached = now()
                    yield stats
                await asyncio.sleep(max(0.0, began + every - now()))
        finally:
            await store.close()

    info = StageInfo("queue_stats", f"{redacted(url)}, {table}, every {every:g} s")

    def attach(downstream: Subscriber[QueueStats], run: Run) -> None:
        Pulling(downstream, run, info, lambda: Reading(looks(), aiter)).start()

    return Flowable(attach, info)
