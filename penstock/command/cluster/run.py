"""`penstock run FILE --on URLS`: be one worker of a pipeline that runs on servers."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from typing import Any

from penstock.command.cluster.broker import Broker, Member, broker_of
from penstock.command.output import counted, is_json, mention, say
from penstock.command.pipelines.options import Options, options_of
from penstock.command.pipelines.run import loaded, recorded, served, tell
from penstock.streams.base.errors import BuildError
from penstock.streams.delivery.view import View
from penstock.streams.io.inputs.patterns import listed
from penstock.streams.pipelines.pipeline import Pipeline, new_event_loop
from penstock.streams.pipelines.running import Report, Running
from penstock.streams.runtime.process.os_signals import drain_on_signals, keep_exit_status
from penstock.streams.stages.forgetting import refuse_engine

__all__ = ["call"]

_ATTEMPTS = 3


def call(options: argparse.Namespace, for_the_file: list[str]) -> int:
    """Load, join the workers, work until a signal; report; returns the exit status."""
    settings = options_of(options, for_the_file)
    where = options.file
    if options.workers is not None:
        raise BuildError(
            "--workers divides the work among processes of this machine, --on among all that run "
            "on these servers: give one of them"
        )
    if settings.input is not None:
        raise BuildError(
            "--input does not go with --on, where events come from the servers: feed them with "
            f"`penstock publish {where} --on ... --input {listed(settings.input)}`"
        )
    attempts = _ATTEMPTS if options.attempts is None else options.attempts
    if attempts < 1:
        raise BuildError(f"{attempts} attempts: at least 1 is needed")
    broker = broker_of(options)
    pipeline = loaded(where, settings)
    # Before anything is made on the servers.
    infos = (stream.info for stream in pipeline.flowable.chain())
    refuse_engine(infos, moves_states=broker.moves_states)
    name = broker.prepare(pipeline)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        report, restarts = runner.run(_work(broker, name, pipeline, attempts, settings))
    status = tell(report, settings)
    if restarts and settings.report == "text":
        (mention if is_json() else say)(
            f"  begun again after a lost lease: {counted(restarts, 'time')}; the numbers are of "
            "the last run"
        )
    return status


async def _work(
    broker: Broker, name: str, pipeline: Pipeline, attempts: int, options: Options
) -> tuple[Report, int]:
    beside = _Beside(options)
    async with broker.member(pipeline, attempts, options, beside.of) as (member, look):
        beside.fleet = partial(_fleet, member, look)
        if options.report == "text":
            mention(
                f"worker {member.name} of {name}; in a stage without on_error, an event that fails "
                f"{counted(attempts, 'time')} goes to the dead letters"
            )
        if options.alone:
            keep_exit_status(partial(_exit_status, member))
        tell_people = mention if options.report == "text" else None
        with drain_on_signals(member, options.drain_deadline, tell_people):
            try:
                report = await member.run()
            except Exception as error:
                if member.running is None or member.running.report().error is not error:
                    raise
                report = member.running.report()
        return report, member.restarts


def _exit_status(member: Member) -> int:
    """The exit status of the last run; 1 if none has begun."""
    return 1 if member.running is None else member.running.report().exit_status


class _Beside:
    """The recording of one worker's runs, and their live page, always on one address."""

    fleet: Callable[[], Awaitable[dict[str, Any]]]

    def __init__(self, options: Options) -> None:
        self._options = options
        self._page = options.page
        self._again = False

    async def of(self, running: Running) -> AbstractAsyncContextManager[object]:
        """A context of a run that has just been started, until its end."""
        again, self._again = self._again, True
        await recorded(running, self._options, again=again)
        if self._page is None:
            return nullcontext()
        serving = await served(running, self._page, self.fleet, again=again)
        self._page = self._page._replace(port=serving.port, token=serving.token)
        return serving


async def _fleet(member: Member, look: Callable[[], Awaitable[View]]) -> dict[str, Any]:
    """All workers and partitions, as a live page shows them."""
    view = await look()
    return {
        "here": member.id,
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
