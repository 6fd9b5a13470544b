"""Work pulling: a master offers jobs, and workers that join and leave request them.

`offer` makes a stream of results of an epic, which is a lazy iterable or a stream; `work` makes
the pipeline of a worker. Both sides name the same pool: the same object in one process, the same
name and servers on NATS JetStream, with the master and any number of workers anywhere.

Items:   the result of each job, as they come, or in the order of the epic (`ordered=True`).
Time:    a job goes out when a worker has room for it; workers wait without polling.
Memory:  at the master, the jobs that workers have room for and `window` results, whatever the
         length of the epic; the server stores the jobs that have not begun.
Demand:  the epic is read as far as workers have demand, and as results are requested, at most
         `window` ahead. A worker requests as many jobs as may begin.
Ends:    with the epic, when every result is delivered. An event of the epic is finished when the
         sinks have accepted its result. Cancel withdraws jobs that have not begun. A worker stays
         until it is drained or cancelled; its unfinished jobs go to another worker, also when it
         dies.
Errors:  a job that fails is tried `attempts` times in all, by the worker that has it; one that has
         cost that many workers while it was alone there fails for good too. `on_error` of the offer
         says what then happens. A second epic is PoolBusy, or waits (`when_busy="wait"`).

    epic     1--2--3---|
    worker   -a
    worker   ----b--c
    offer    --A---B--C|
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal

from penstock.streams.base.errors import BuildError, describe
from penstock.streams.base.extras import require
from penstock.streams.base.recorded import recorded
from penstock.streams.execution.limit_control import Overload
from penstock.streams.execution.options import CallOptions, HandlerOptions
from penstock.streams.failures.backoff import Backoff
from penstock.streams.failures.policy import OnError, check_policy, retry, route, routed_by
from penstock.streams.limits.choice import Limit
from penstock.streams.nats.client.addresses import Servers, addresses_of
from penstock.streams.pipelines.flowable import Flowable
from penstock.streams.pipelines.pipeline import Pipeline
from penstock.streams.protocol.stage import Subscriber
from penstock.streams.protocol.stage_info import Delivery, Placement, StageInfo
from penstock.streams.runtime.context import Run

if TYPE_CHECKING:
    from penstock.streams.work_pulling.offering import Dispatcher

# What pools are made of is imported when one is used: it is slow to import, and few have one. It
# is imported when a stream is built, since that of a run would block its loop.

__all__ = ["WorkPool"]


@recorded
class WorkPool:
    """A pool in which jobs are offered and requested: in this process, or on `servers`.

    >>> import asyncio
    >>> from penstock import WorkPool, collect
    >>> async def main():
    ...     pool, results = WorkPool(), []
    ...     async with pool.work(str.upper).start() as worker:
    ...         await pool.offer(["a", "b"]).to(collect(results)).run()
    ...         worker.cancel()
    ...     print(sorted(results))
    >>> asyncio.run(main())
    ['A', 'B']
    """

    def __init__(
        self,
        servers: Servers | None = None,
        name: str = "work",
        *,
        attempts: int = 3,
        lease: float = 30.0,
    ) -> None:
        """On `servers`, jobs and results must be JSON values, and a job goes to another worker when
        its lease has not been renewed for `lease` seconds. Raises BuildError for invalid options,
        MissingExtra without nats-py."""
        if isinstance(attempts, bool) or attempts < 1 or not lease > 0:
            raise BuildError(
                f"WorkPool(attempts={attempts!r}, lease={lease!r}): at least 1 attempt and "
                "positive seconds are needed"
            )
        if not re.fullmatch(r"[A-Za-z0-9_-]{1,200}", name):
            raise BuildError(
                f"WorkPool(name={describe(name)}): use at most 200 letters, digits, - and _"
            )
        if servers is not None:
            require("nats", "WorkPool on servers needs nats-py", "cluster")
        from penstock.streams.work_pulling.in_process import InProcessPool
        from penstock.streams.work_pulling.wire import Wire

        self.name = name
        self._attempts = attempts
        self._local = InProcessPool(name, attempts)
        self._wire = None if servers is None else Wire(addresses_of(servers), name, attempts, lease)

    def offer(
        self,
        epic: Callable[[], Iterable[Any]] | Iterable[Any] | Flowable[Any],
        *,
        ordered: bool = False,
        window: int = 256,
        on_error: OnError | None = None,
        when_busy: Literal["refuse", "wait"] = "refuse",
    ) -> Flowable[Any]:
        """The results of an epic. If its events hold a turn, those of a key keep their order.

        `on_error` is "stop", "skip" or `route(sink)`, for jobs that failed for good; without it
        they stop the epic, or on servers go to the pool's own dead letters. Raises BuildError for
        invalid options.
        """
        if on_error is not None:
            check_policy(on_error, "offer")
        if window < 1 or when_busy not in ("refuse", "wait"):
            raise BuildError(
                f"offer(window={window!r}, when_busy={when_busy!r}): at least 1 result must fit, "
                'and a busy pool can "refuse" or "wait"'
            )
        from penstock.streams.nats.cluster.letters import WINDOW
        from penstock.streams.work_pulling.in_process import InProcessMaster
        from penstock.streams.work_pulling.jetstream_master import JetStreamMaster
        from penstock.streams.work_pulling.offering import Offering

        given: Any = epic
        source: Flowable[Any] = (
            given if isinstance(epic, Flowable) else Flowable.from_iterable(given)
        )
        patient = when_busy == "wait"

        def make(downstream: Subscriber[Any], run: Run, info: StageInfo) -> Offering:
            dispatcher: Dispatcher
            # The default for jobs that failed for good.
            policy: OnError = "stop"
            if self._wire is None:
                dispatcher = InProcessMaster(self._local, patient=patient)
            else:
                dispatcher = master = JetStreamMaster(self._wire, patient=patient)
                policy = route(master.letters)
            last = policy if on_error is None else on_error
            options = HandlerOptions(ordered=ordered, window=window, on_error=last)
            return Offering(downstream, run, info, dispatcher, options)

        note = f"as many jobs as workers ask for, {window:,} results"
        routed = routed_by(on_error)
        if on_error is None and self._wire is not None:
            routed = (StageInfo("letters", bound=WINDOW),)
        info = StageInfo(
            "offer", self.name, None, note, routed=routed, placement=Placement(works=True)
        )
        return source.then(make, info, turns=False)

    def work(
        self,
        handler: Callable[[Any], Any],
        limit: Limit = None,
        *,
        timeout: float | None = None,
        backoff: Backoff | None = None,
        overload: Overload | None = None,
    ) -> Pipeline:
        """The pipeline of a worker, which runs and drains like any other.

        `handler`, plain or async, is given a job and returns its result. `limit`, `timeout` and
        `overload` are those of `adaptive_flat_map`; `backoff` is the wait between attempts. Raises
        BuildError for invalid options.
        """
        from penstock.streams.work_pulling.in_process import InProcessWorker
        from penstock.streams.work_pulling.jetstream_worker import JetStreamWorker
        from penstock.streams.work_pulling.working import UNREPORTED, GivenUp, worker

        def attach(downstream: Subscriber[Any], run: Run) -> None:
            if self._wire is None:
                InProcessWorker(downstream, run, jobs.info, self._local).start()
            else:
                JetStreamWorker(downstream, run, jobs.info, self._wire).start()

        info = StageInfo("jobs", self.name, 0, delivery=Delivery(acknowledges=True))
        jobs: Flowable[Any] = Flowable(attach, info)
        options = CallOptions(
            handler=handler,
            timeout=timeout,
            on_error=retry(self._attempts, backoff, route(GivenUp())),
            overload=overload,
            window=UNREPORTED,
        )
        return worker(jobs, limit, options)
