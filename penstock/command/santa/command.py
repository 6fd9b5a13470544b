"""`penstock santa`: the self-adjusting mailbox with real work in processes."""

from __future__ import annotations

import argparse
import asyncio
import os
from math import inf

from penstock.command.output import mention, put, say
from penstock.command.santa.jobs import SECONDS, batches, number_for, solve
from penstock.command.santa.plot import check, plot
from penstock.command.santa.sparks import sparks
from penstock.command.santa.story import Curve, story
from penstock.operators import in_processes
from penstock.streams.errors import BuildError
from penstock.streams.limits import Fixed, HillClimb
from penstock.streams.limits.choice import Limit
from penstock.streams.pipeline import new_event_loop

__all__ = ["call"]


def call(options: argparse.Namespace, for_the_file: list[str]) -> int:
    """Run the story, print its log and how long the jobs took; returns the exit status."""
    limit = _limit(options.limit)
    if options.batches < 1:
        raise BuildError(f"--batches {options.batches}: at least 1 is needed")
    if not 0 < options.speed < inf:
        raise BuildError(f"--speed {options.speed:g}: must be a number above 0")
    if options.plot is not None:
        check(options.plot)
    value = number_for(SECONDS / options.speed)
    mention(
        f"{options.batches} batches of 0 to 10 jobs; each factorizes {value:,}, about "
        f"{SECONDS / options.speed:.2g} s; the story goes {options.speed:g} times as fast as the "
        f"clock, on {os.cpu_count()} cores"
    )
    # More than there are cores: how many are of use is for the limit to find out.
    handler = in_processes(4 * (os.cpu_count() or 1))(solve)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        try:
            curve = runner.run(
                story(
                    handler,
                    limit,
                    batches(options.seed),
                    options.batches,
                    value=value,
                    speed=options.speed,
                    say=_put,
                )
            )
        except KeyboardInterrupt:
            return 130
    say(_summary(curve))
    if options.plot is not None:
        plot(curve, f"Santa's mailbox, limit {options.limit}", options.plot)
        mention(f"drawn in {options.plot}")
    return 0


def _put(line: str) -> None:
    put(line + "\n")


def _limit(text: str) -> Limit:
    if text == "auto":
        return None
    if text == "hill-climb":
        return HillClimb()
    kind, _, number = text.partition(":")
    if kind == "fixed" and number.isdecimal() and int(number) > 0:
        return Fixed(int(number))
    raise BuildError(f"--limit {text}: say fixed:N, hill-climb or auto")


def _summary(curve: Curve) -> str:
    totals = sorted(curve.total)
    if not totals:
        return "penstock: no job came"
    return sparks(curve) + (
        f"\npenstock: {len(totals)} jobs in {curve.done_at[-1]:.0f} s of the story; seconds in the "
        f"system: median {totals[len(totals) // 2]:.0f}, longest {totals[-1]:.0f}; at most "
        f"{max(curve.in_flight)} in flight, {max(curve.queue)} in the queue"
    )
