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
from penstock.output import put
from streams.errors import BuildError
from streams.pipeline import new_event_loop

__all__ = ["run_kata"]


def run_kata(options: argparse.Namespace) -> int:
    """Run the reference pipeline and the variants asked for; returns the exit status.

    Raises BuildError for a value out of range or an unknown variant.
    """
    variants = _variants(options.variant or [])
    try:
        load = Load(
            options.rate, options.clients, options.duplicates, options.seconds, options.seed
        )
        work = Work(options.handler_ms / 1000, options.sigma_ms / 1000)
    except ValueError as error:
        raise BuildError(f"kata: {error}") from error
    runs: list[Measured] = [run_variant(name, load, work.block) for name in variants]
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runs.append(runner.run(run_reference(load, work.pause)))
    return put(f"{table(runs)}\n")


def _variants(names: list[str]) -> list[str]:
    if "all" in names:
        return list(VARIANTS)
    for name in names:
        if name not in VARIANTS:
            raise BuildError(
                f"kata: there is no variant {name!r}; there are {', '.join(VARIANTS)}, all"
            )
    return names
