"""What a broker supplies to the sub-commands with `--on`, and the table of brokers."""

from __future__ import annotations

import argparse
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from importlib import import_module
from typing import ClassVar, NamedTuple, Protocol

from penstock.command.output import counted
from penstock.command.pipelines.options import Options
from penstock.streams.base.errors import BuildError
from penstock.streams.delivery.view import View
from penstock.streams.io.letter import Letter
from penstock.streams.pipelines.pipeline import Pipeline
from penstock.streams.pipelines.running import Report, Running

__all__ = [
    "BROKERS",
    "PATIENCE",
    "Beside",
    "Broker",
    "Letters",
    "Look",
    "Member",
    "Publishing",
    "Stored",
    "broker_of",
    "head",
    "name_of",
    "states_that_move",
]

PATIENCE = 3.0
"""Seconds for which an interactive command looks for a server."""

BROKERS = {"nats": "nats.Nats", "kafka": "kafka.Kafka"}
"""The module in this folder and the class of each broker, by the scheme of its addresses. An
address without one of these is of the first."""

Beside = Callable[[Running], Awaitable[AbstractAsyncContextManager[object]]]
"""Enters what is beside a run that has just been started, until it has ended."""

Look = Callable[[], Awaitable[list[str]]]
"""Texts about what is on the servers now, one for each pipeline."""


Stored = tuple[Letter, Callable[[], Awaitable[object]]]
"""A dead letter, and the function that publishes its event again and deletes the letter."""


Publishing = tuple[Pipeline, Callable[[Report], str]]
"""A pipeline that stores the events of a source, and a function that words its report."""


class Member(Protocol):
    """One process of a pipeline. A lost lease may end its run, and another one begin."""

    running: Running | None
    restarts: int

    @property
    def name(self) -> str: ...

    @property
    def id(self) -> str:
        """Its id in a view; "" while it has none."""
        ...

    async def run(self) -> Report:
        """Work until drained; returns the report of the last run. Raises what ended it."""
        ...

    def begin_drain(self, deadline: float | None = None, *, by_signal: bool = False) -> None: ...

    def cancel(self) -> None: ...


class Letters(NamedTuple):
    """The dead letters of one pipeline, each with the function that publishes its event again; or
    `replay` does so with all that are chosen, and returns the exit status."""

    stored: AsyncIterator[Stored]
    replay: Callable[[AsyncIterator[Stored]], Awaitable[int]] | None = None


class Broker(Protocol):
    """The servers and the pipeline that the options of a command name."""

    refused: ClassVar[Mapping[str, str]]
    """The options that it does not know, each with the reason."""
    moves_states: ClassVar[bool]
    """Whether the states of a store move with the partitions of the events."""

    def __init__(self, options: argparse.Namespace) -> None: ...

    def prepare(self, pipeline: Pipeline) -> str:
        """Settle where the pipeline is on the servers; returns its name there, for a message."""
        ...

    def member(
        self, pipeline: Pipeline, attempts: int, options: Options, beside: Beside
    ) -> AbstractAsyncContextManager[tuple[Member, Callable[[], Awaitable[View]]]]:
        """A process that works on the prepared pipeline, and a view of the whole. An event has
        `attempts` attempts in a stage without `on_error`."""
        ...

    def publishing(self, pipeline: Pipeline) -> AbstractAsyncContextManager[Publishing]:
        """A context with the pipeline that stores the source's events, as `Publishing`."""
        ...

    def looking(self) -> AbstractAsyncContextManager[Look]:
        """The state of the named pipeline, or of all that are there."""
        ...

    def letters(self) -> AbstractAsyncContextManager[Letters]:
        """The dead letters of the named pipeline."""
        ...


def broker_of(options: argparse.Namespace) -> Broker:
    """The broker of the address in `--on`. Raises BuildError for invalid addresses, and for options
    that are about another broker."""
    scheme = options.on.partition("://")[0]
    if scheme not in BROKERS or "://" not in options.on:
        scheme = next(iter(BROKERS))
    module, _, name = BROKERS[scheme].partition(".")
    kind: type[Broker] = getattr(import_module(f"{__package__}.{module}"), name)
    for option, why in kind.refused.items():
        if getattr(options, option, None) is not None:
            option = option.replace("_", "-")
            raise BuildError(f"--{option} does not go with --on {scheme}://: {why}")
    return kind(options)


def head(view: View, where: str = "", rate: float | None = None) -> list[str]:
    """The first lines of the text about a view, which is kept `where`."""
    free = len(view.lag) - len(view.owners)
    fullest, most = max(view.lag.items(), key=lambda one: one[1], default=(0, 0))
    return [
        f"{view.name}: {counted(view.unfinished, view.unit)} unfinished, {view.stored:,} kept"
        f"{where}, {counted(view.letters, 'dead letter')}"
        + ("" if rate is None else f", {rate:,.0f} events/s finished"),
        f"  {counted(len(view.lag), 'partition')}, {free} of them with no worker"
        + (f"; most behind is {fullest} with {most:,}" if most else ""),
    ]


def states_that_move(view: View, unit: str) -> list[str]:
    """A line for each partition whose states are being restored, and for each worker with standby
    copies; they are counted in units, such as keys."""
    lines: list[str] = []
    for worker in view.workers.values():
        for one in worker.get("restoring", ()):
            rate = one["done"] / max(one["seconds"], 0.001)
            left = (one["total"] - one["done"]) / rate if rate else 0.0
            lines.append(
                f"  {worker['name']} restores the states of partition {one['partition']}: "
                f"{one['done']:,} of {one['total']:,} {unit}, {rate:,.0f} {unit}/s, "
                f"{left:.0f} s left"
            )
        if (lag := worker.get("standby_lag")) is not None:
            lines.append(f"  {worker['name']} has standby copies, {lag:,} {unit} behind")
    return lines


def name_of(where: str, given: str | None) -> str:
    """The pipeline's name on the servers: the file's stem, then "-" and the variable, if named."""
    if given is not None:
        return given
    path, colon, name = where.rpartition(":")
    if not colon or os.path.exists(where):
        path, name = where, ""
    stem = os.path.splitext(os.path.basename(path))[0]
    return f"{stem}-{name}" if name else stem
