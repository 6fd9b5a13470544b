"""`penstock kata`: the kata at full load, and one table of what was measured."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Generator
from contextlib import contextmanager

from penstock.command.interrupt import Interrupted
from penstock.command.kata.load import Load
from penstock.command.kata.observe import Measured, Observer
from penstock.command.kata.reference import run_reference
from penstock.command.kata.table import table
from penstock.command.kata.variants import VARIANTS, run_variant
from penstock.command.kata.work import Work
from penstock.command.on_signal import on_signal
from penstock.command.output import mention, put
from penstock.command.status import on_a_terminal, status
from penstock.streams.errors import BuildError
from penstock.streams.pipeline import new_event_loop
from penstock.streams.runtime.running import Running

__all__ = ["call"]


def call(options: argparse.Namespace, for_the_file: list[str]) -> int:
    """Run the variants asked for and the reference pipeline, and print the table.

    Returns the exit status: 1 if the reference broke a promise of the kata, 128 and the number
    of a signal that ended it, with what was measured until then. Raises BuildError for a value
    out of range or an unknown variant.
    """
    variants = _variants(options.variant or [])
    try:
        load = Load(
            options.rate, options.clients, options.duplicates, options.seconds, options.seed
        )
        work = Work(options.handler_ms / 1000, options.sigma_ms / 1000)
    except ValueError as error:
        raise BuildError(f"kata: {error}") from error
    runs: list[Measured] = []
    interrupted = _run_variants(variants, load, work, runs) or _run_reference(load, work, runs)
    printed = put(f"{_heading(load, work)}\n\n{table(runs)}\n")
    if interrupted is not None:
        mention(f"{interrupted} before the load's end")
        return interrupted.exit_status
    return printed or int(_broke_a_promise(runs[-1]))


def _run_variants(
    names: list[str], load: Load, work: Work, runs: list[Measured]
) -> Interrupted | None:
    for name in names:
        if on_a_terminal():
            mention(f"{name}, for {load.seconds:g} s")
        observer = Observer()
        try:
            runs.append(run_variant(name, load, work.block, observer=observer))
        except Interrupted as interrupted:
            runs.append(observer.measured(name))
            return interrupted
    return None


def _run_reference(load: Load, work: Work, runs: list[Measured]) -> Interrupted | None:
    interrupts: list[Interrupted] = []

    @contextmanager
    def watch(running: Running) -> Generator[None]:
        def stop(interrupted: Interrupted) -> None:
            interrupts.append(interrupted)
            running.cancel()

        with on_signal(stop), status(running):
            yield

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runs.append(runner.run(run_reference(load, work.pause, watch=watch)))
    return interrupts[0] if interrupts else None


def _heading(load: Load, work: Work) -> str:
    return (
        f"{load.rate:,g} events/s for {load.seconds:g} s, {load.clients:,} clients, "
        f"{100 * load.duplicates:g} % duplicates, {work.mean * 1000:g} ms of work each "
        f"(sigma {work.sigma * 1000:g} ms).\n"
        "Latency is from creation to start of processing, in milliseconds."
    )


def _broke_a_promise(run: Measured) -> bool:
    return bool(run.duplicates_processed or run.overlapped or run.overtaken or run.lost)


def _variants(names: list[str]) -> list[str]:
    if "all" in names:
        return list(VARIANTS)
    for name in names:
        if name not in VARIANTS:
            raise BuildError(
                f"kata: there is no variant {name!r}; there are {', '.join(VARIANTS)}, all"
            )
    return names
