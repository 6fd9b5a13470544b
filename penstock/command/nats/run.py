"""`penstock run FILE --on URLS`: be one worker of a pipeline that runs on NATS JetStream."""

from __future__ import annotations

import argparse
import asyncio
import os
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.command.output import counted, is_json, mention, say
from penstock.command.pipelines.run import (
    Options,
    loaded,
    recorded,
    served,
    tell,
)
from penstock.streams.errors import BuildError
from penstock.streams.nats.client.addresses import addresses_of, shown
from penstock.streams.pipeline import Pipeline, new_event_loop
from penstock.streams.runtime.process.os_signals import drain_on_signals, keep_exit_status
from penstock.streams.runtime.running import Report, Running

if TYPE_CHECKING:
    from penstock.streams.nats.client.client import Client
    from penstock.streams.nats.cluster.layout import Layout
    from penstock.streams.nats.cluster.worker import Worker

__all__ = ["PATIENCE", "Cluster", "name_of", "urls_of", "work"]


PATIENCE = 3.0
"""Seconds for which an interactive command looks for a server."""


class Cluster(NamedTuple):
    """The options about servers: their addresses, and the pipeline's name and settings there."""

    urls: tuple[str, ...]
    name: str
    partitions: int | None = None
    replicas: int | None = None
    lease: float | None = None
    worker: str = ""
    room: int | None = None
    batch: int | None = None
    attempts: int | None = None

    @classmethod
    def of(cls, options: argparse.Namespace) -> Cluster:
        """The options of the command line; raises BuildError for invalid addresses."""
        return cls(
            urls_of(options.on),
            name_of(options.file, options.name),
            options.partitions,
            options.replicas,
            getattr(options, "lease", None),
            getattr(options, "worker", None) or "",
            options.room,
            options.batch,
            getattr(options, "attempts", None),
        )

    def layout_of(self, pipeline: Pipeline) -> Layout:
        """The layout of `pipeline` on the servers."""
        from penstock.streams.nats.cluster.layout import layout_of

        return layout_of(pipeline, self.name, self.partitions, self.replicas, self.room, self.batch)


def urls_of(text: str) -> tuple[str, ...]:
    """The addresses in `nats://a,b,c`; BuildError where there is none."""
    try:
        return addresses_of(text)
    except BuildError:
        raise BuildError(
            f"--on {shown(text.split(','))}: penstock runs on NATS or Kafka, and needs an address "
            "of it; give nats://host:port, or kafka://host:port/topic"
        ) from None


def name_of(where: str, given: str | None) -> str:
    """The pipeline's name on the servers: the file's, with that of the pipeline in it."""
    if given is not None:
        return given
    path, colon, name = where.rpartition(":")
    if not colon or os.path.exists(where):
        path, name = where, ""
    stem = os.path.splitext(os.path.basename(path))[0]
    return f"{stem}-{name}" if name else stem


def work(where: str, options: Options, cluster: Cluster) -> int:
    """Load, join the workers, work until a signal; report; returns the exit status."""
    if options.input is not None:
        raise BuildError(
            "--input does not go with --on, where events come from the servers: feed them with "
            f"`penstock publish {where} --on ... --input {options.input}`"
        )
    pipeline = loaded(where, options)
    layout = cluster.layout_of(pipeline)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        report, restarts = runner.run(_work(pipeline, layout, options, cluster))
    status = tell(report, options)
    if restarts and options.report == "text":
        (mention if is_json() else say)(
            f"  begun again after a lost lease: {counted(restarts, 'time')}; the numbers are of "
            "the last run"
        )
    return status


async def _work(
    pipeline: Pipeline, layout: Layout, options: Options, cluster: Cluster
) -> tuple[Report, int]:
    from penstock.streams.nats.client.connection import connect
    from penstock.streams.nats.cluster.worker import ATTEMPTS, Worker

    attempts = ATTEMPTS if cluster.attempts is None else cluster.attempts
    client = await connect(cluster.urls)
    try:
        worker = Worker(
            client,
            layout,
            pipeline,
            name=cluster.worker,
            ttl=cluster.lease,
            attempts=attempts,
            drain_deadline=options.drain_deadline,
            limit=options.limit,
            warn=partial(mention, level="warning"),
            beside=_Beside(options, client).of,
        )
        if options.report == "text":
            mention(
                f"worker {worker.name} of '{layout.name}'; in a stage without on_error, an event "
                f"that fails {counted(attempts, 'time')} goes to the dead letters"
            )
        if options.alone:
            keep_exit_status(partial(_exit_status, worker))
        tell_people = mention if options.report == "text" else None
        with drain_on_signals(worker, options.drain_deadline, tell_people):
            try:
                report = await worker.run()
            except Exception as error:
                if worker.running is None or worker.running.report().error is not error:
                    raise
                report = worker.running.report()
        return report, worker.restarts
    finally:
        await client.close()


def _exit_status(worker: Worker) -> int:
    """That of the last run; 1 if none has begun."""
    return 1 if worker.running is None else worker.running.report().exit_status


class _Beside:
    """What is recorded of the runs of one worker, and their live page, always on one address."""

    def __init__(self, options: Options, client: Client) -> None:
        self._options = options
        self._client = client
        self._page = options.page
        self._again = False

    async def of(self, worker: Worker, running: Running) -> AbstractAsyncContextManager[object]:
        """What is beside a run that has just been started."""
        again, self._again = self._again, True
        await recorded(running, self._options, again=again)
        if self._page is None:
            return nullcontext()
        fleet = partial(_fleet, self._client, worker)
        serving = await served(running, self._page, fleet, again=again)
        self._page = self._page._replace(port=serving.port, token=serving.token)
        return serving


async def _fleet(client: Client, worker: Worker) -> dict[str, Any]:
    """All workers and partitions, as a live page shows them."""
    from penstock.streams.nats.cluster.view import look

    view = await look(client, worker.layout)
    return {
        "here": worker.id,
        "unfinished": view.unfinished,
        "unit": view.unit,
        "stored": view.stored,
        "letters": view.letters,
        "workers": view.workers,
        "partitions": {
            str(number): {"lag": lag, "owner": view.owners.get(number)}
            for number, lag in view.lag.items()
        },
    }
