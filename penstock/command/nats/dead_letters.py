"""`penstock dead-letters list|replay --on URLS`: lists dead letters, or tries them again."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import TYPE_CHECKING, Any

from orjson import loads

from penstock.command.dead_letters import Chosen, list_letters, publish_again
from penstock.command.nats.run import PATIENCE, urls_of
from penstock.command.nats.status import check_names, one_of
from penstock.command.output import counted, mention
from penstock.sinks import write_jsonl
from penstock.sources import WorkPool
from penstock.streams.boundary.from_iterable import from_async_iterable
from penstock.streams.errors import BuildError, EventOmitted
from penstock.streams.nats.client.connection import connect, jetstream
from penstock.streams.nats.client.outbox import Outbox
from penstock.streams.nats.cluster.letters import Letter, letters_of
from penstock.streams.nats.cluster.publisher import send_again
from penstock.streams.nats.cluster.view import layouts_there
from penstock.streams.runtime.process.os_signals import drain_on_signals
from penstock.streams.work_pulling.view import pools_there

if TYPE_CHECKING:
    from nats.js import JetStreamContext

    from penstock.streams.nats.cluster.layout import Layout
    from penstock.streams.work_pulling.wire import Wire

__all__ = ["call"]

# Seconds for jobs that are out when a signal comes.
_DEADLINE = 20.0


def call(options: argparse.Namespace, for_the_file: list[str]) -> int:
    """List the dead letters as JSON lines, or publish their events or jobs again and delete them.
    The results of a work pool's jobs are printed as JSON lines."""
    return asyncio.run(_work(options))


async def _work(options: argparse.Namespace) -> int:
    check_names(options)
    chosen = Chosen(options.id)
    urls = urls_of(options.on)
    client = await connect(urls, patience=PATIENCE)
    try:
        js = jetstream(client)
        if options.pool is not None:
            pool = one_of(await pools_there(js), options.pool, "work pool")
            letters = _letters(js, pool.letters, chosen)
            if options.action == "list":
                status = await list_letters(letters)
            else:
                status = await _offer_again(WorkPool(urls, pool.name), js, pool, letters)
        else:
            layout = _pipeline(await layouts_there(js), options.name)
            letters = _letters(js, layout.letters, chosen)
            if options.action == "list":
                status = await list_letters(letters)
            else:
                async with Outbox(client, doubt=layout.doubt) as outbox:
                    send = partial(send_again, outbox, js, layout)
                    status = await publish_again(
                        (letter, partial(send, letter)) async for letter in letters
                    )
    finally:
        await client.close()
    return chosen.status(status)


async def _letters(js: JetStreamContext, stream: str, chosen: Chosen) -> AsyncIterator[Letter]:
    async for letter in letters_of(js, stream, mention):
        if chosen.has(letter):
            yield letter


def _pipeline(layouts: list[Layout], name: str | None) -> Layout:
    if name is None:
        if len(layouts) != 1:
            names = ", ".join(layout.name for layout in layouts) or "none"
            raise BuildError(f"choose a pipeline by --name; there are: {names}")
        name = layouts[0].name
    return one_of(layouts, name)


async def _offer_again(
    pool: WorkPool, js: JetStreamContext, wire: Wire, letters: AsyncIterator[Letter]
) -> int:
    """Offer the jobs as an epic, and delete their letters when it is over. One that fails again
    is a new letter."""
    offered: list[int] = []
    omitted = 0

    async def jobs() -> AsyncIterator[Any]:
        nonlocal omitted
        async for letter in letters:
            try:
                job = loads(letter.event())
            except EventOmitted as error:
                mention(str(error))
                omitted += 1
                continue
            offered.append(letter.sequence)
            yield job

    results = pool.offer(from_async_iterable(jobs)).to(write_jsonl())
    running = results.start()
    with drain_on_signals(running, _DEADLINE, mention):
        report = await running.wait()
    if report.outcome != "completed":
        mention("not all jobs were done: their dead letters are kept")
        return report.exit_status
    for sequence in offered:
        await js.delete_msg(wire.letters, sequence)
    failed = report.statistics["failed"]
    mention(f"{counted(len(offered), 'job')} offered again, {failed:,} failed again")
    return report.exit_status or min(1, omitted)
