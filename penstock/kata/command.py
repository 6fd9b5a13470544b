"""`penstock kata`: the kata at full load, and one table of what was measured."""

from __future__ import annotations

import argparse
import asyncio

from penstock.kata.load import Load
from penstock.kata.observe import Measured
from penstock.kata.reference import run_reference
from penstock.kata.table import table
from penstock.kata.variants import VARIANTS, run_variant
from penstock.kata.work import Work
from penstock.output import put, say
from penstock.status import on_a_terminal, status
from streams.errors import BuildError
from streams.pipeline import new_event_loop

__all__ = ["run_kata"]


def run_kata(options: argparse.Namespace) -> int:
    """Run the variants asked for and the reference pipeline, and print the table.

    Returns the exit status: 1 if the reference broke a promise of the kata. Raises BuildError
    for a value out of range or an unknown variant.
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
    for name in variants:
        if on_a_terminal():
            say(f"penstock: {name}, for {load.seconds:g} s")
        runs.append(run_variant(name, load, work.block))
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        reference = runner.run(run_reference(load, work.pause, watch=status))
    runs.append(reference)
    printed = put(f"{_heading(load, work)}\n\n{table(runs)}\n")
    return printed or int(_broke_a_promise(reference))


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
