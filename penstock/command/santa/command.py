"""`penstock santa`: the self-adjusting mailbox, with real work in processes or simulated."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
from collections.abc import Coroutine
from math import inf
from typing import Any, TypeVar

from penstock.command.interrupt import Interrupted
from penstock.command.on_signal import on_signal
from penstock.command.output import Lines, mention, put, say
from penstock.command.pipelines.status_line import on_a_terminal
from penstock.command.santa.jobs import (
    PUBLISHED,
    SECONDS,
    batches,
    largest_factor,
    seconds_for,
    solve,
    value_for,
)
from penstock.command.santa.live import Live
from penstock.command.santa.plot import check, plot, plot_race
from penstock.command.santa.simulation import SHIFT, Simulation, run
from penstock.command.santa.sparks import race_lines, sparks
from penstock.command.santa.story import UNLIMITED, Curve, story
from penstock.operators.in_processes import in_processes
from penstock.streams.base.errors import BuildError
from penstock.streams.limits import Fixed, HillClimb
from penstock.streams.limits.choice import Limit
from penstock.streams.pipelines.pipeline import new_event_loop

__all__ = ["call"]

T = TypeVar("T")

# The article's integers have 32 bits.
_LARGEST = 2**31 - 1
_VIRTUAL_CORES = 8
_BATCHES = 40
# Half an hour: the article's mailbox needs ten minutes and more to catch up.
_BATCHES_OF_A_RACE = 360


def call(options: argparse.Namespace, for_the_file: list[str]) -> int:
    """Run the story, print its log and how long the jobs took; returns the exit status."""
    _complete(options)
    if options.plot is not None:
        check(options.plot)
    try:
        status = _race(options) if options.race else _one(options)
    except KeyboardInterrupt as interrupt:
        return interrupt.exit_status if isinstance(interrupt, Interrupted) else 130
    if options.plot is not None:
        mention(f"drawn in {options.plot}")
    return status


def _complete(options: argparse.Namespace) -> None:
    """Set the defaults that depend on other options, and raise BuildError for a wrong value."""
    simulated = options.simulate or options.race
    if options.shift is not None and not simulated:
        raise BuildError("--shift: only virtual cores are taken away; add --simulate or --race")
    if options.speed is not None and simulated:
        raise BuildError("--speed is for real processes: leave it out with --simulate and --race")
    if options.race and options.limit is not None:
        raise BuildError("--limit: a race has all limits; leave it out")
    if options.batches is None:
        long = options.race or options.shift is not None
        options.batches = _BATCHES_OF_A_RACE if long else _BATCHES
    if options.batches < 1:
        raise BuildError(f"--batches {options.batches}: at least 1 is needed")
    if options.interval == 0:
        raise BuildError("--interval 0: must be above 0")
    if options.shift is not None and options.batches * options.interval <= SHIFT:
        raise BuildError(
            f"--shift takes cores away at minute {SHIFT / 60:.0f}, when all batches have come: "
            "give more --batches, or a longer --interval"
        )
    if options.value is not None and options.value > _LARGEST:
        raise BuildError(f"--value {options.value}: at most {_LARGEST}")
    options.limit = options.limit or "auto"


def _one(options: argparse.Namespace) -> int:
    limit = _limit(options)
    if options.simulate:
        simulation = _simulation(options)
        with Lines() as lines:
            curve = run(_interruptible(simulation.tell(limit, lines.put)))
    else:
        curve = _real(options, limit)
    say(_summary(curve))
    if options.plot is not None:
        plot(curve, f"Santa's mailbox, limit {options.limit}", options.plot, _shift(options))
    return 0


def _race(options: argparse.Namespace) -> int:
    limits: dict[str, Limit] = {
        "naive": Fixed(UNLIMITED),
        "fixed:4": Fixed(4),
        "hill-climb": HillClimb(**_rates(options), seed=options.seed),
        "auto": None,
    }
    simulation = _simulation(options)
    seconds = simulation.count * simulation.interval
    live = Live()

    def show(curves: dict[str, Curve]) -> None:
        live.show(race_lines(curves, seconds))

    try:
        watch = show if on_a_terminal() else None
        curves = run(_interruptible(simulation.race(limits, watch)))
    finally:
        live.erase()
    status = put("\n".join(race_lines(curves, seconds)) + "\n")
    if options.plot is not None:
        plot_race(curves, "Santa's mailbox with four limits", options.plot, _shift(options))
    return status


def _real(options: argparse.Namespace, limit: Limit) -> Curve:
    speed = 20.0 if options.speed is None else options.speed
    if not 0 < speed < inf:
        raise BuildError(f"--speed {speed:g}: must be a number above 0")
    value = options.value or value_for(speed)
    seconds = seconds_for(value)
    here = os.cpu_count() or 1
    # More than there are cores: how many are of use is for the limit to find out.
    processes = options.cores or 4 * here
    mention(
        f"{_letters(options)}; each factorizes {value:,}, about {seconds:.2g} s here; the story "
        f"goes {speed:g} times as fast as the clock, in {processes} processes on {here} cores"
    )
    _compare(options, seconds * speed, min(here, processes))
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        telling = story(
            in_processes(processes)(solve),
            limit,
            batches(options.seed, options.max_batch),
            options.batches,
            value=value,
            interval=options.interval,
            speed=speed,
            say=_put,
        )
        return runner.run(_interruptible(telling))


async def _interruptible(telling: Coroutine[Any, Any, T]) -> T:
    """Await it; a signal cancels it, and is raised once it has ended."""
    task = asyncio.current_task()
    interrupts: list[Interrupted] = []
    log = logging.getLogger("penstock")
    level = log.level

    def stop(interrupted: Interrupted) -> None:
        interrupts.append(interrupted)
        # The letters that are lost are not waited for.
        log.setLevel(logging.ERROR)
        if task is not None:
            task.cancel()

    with on_signal(stop):
        try:
            return await telling
        except asyncio.CancelledError:
            if interrupts:
                raise interrupts[0] from None
            raise
        finally:
            log.setLevel(level)


def _shift(options: argparse.Namespace) -> float | None:
    return None if options.shift is None else SHIFT


def _simulation(options: argparse.Namespace) -> Simulation:
    value = options.value or PUBLISHED
    cores = options.cores or _VIRTUAL_CORES
    left = _left(options, cores)
    simulation = Simulation(
        options.batches,
        options.max_batch,
        options.interval,
        options.seed,
        value,
        SECONDS * largest_factor(value) / PUBLISHED,
        cores,
        left,
    )
    shift = "" if left is None else f", {left} from minute {SHIFT / 60:.0f} on"
    mention(
        f"{_letters(options)}; each factorizes {value:,}, {simulation.seconds:.2g} s of one of "
        f"{cores} virtual cores{shift}"
    )
    _compare(options, simulation.seconds, cores if left is None else left)
    return simulation


def _left(options: argparse.Namespace, cores: int) -> int | None:
    """The cores that are left after the shift, None if there is none."""
    if options.shift is None:
        return None
    left: int = options.shift or cores * 3 // 4
    if not 0 < left < cores:
        raise BuildError(
            f"--shift would leave {left} of {cores} cores: at least 1 must be left, and at least "
            "1 taken away"
        )
    return left


def _letters(options: argparse.Namespace) -> str:
    return (
        f"{options.batches} batches of 0 to {options.max_batch} jobs, one each "
        f"{options.interval:g} s"
    )


def _compare(options: argparse.Namespace, seconds: float, cores: int) -> None:
    """Say where jobs of so many seconds of the story are too much for so many cores."""
    needed = options.max_batch / 2 * seconds / options.interval
    if needed > cores:
        verb = "is" if cores == 1 else "are"
        mention(f"needs {needed:.3g} cores, {cores} {verb} here: the work piles up")


def _put(line: str) -> None:
    put(line + "\n")


def _limit(options: argparse.Namespace) -> Limit:
    text = options.limit
    rates = _rates(options)
    if text == "hill-climb":
        return HillClimb(**rates, seed=options.seed)
    if rates:
        given = ", ".join("--" + name.replace("_", "-") for name in rates)
        raise BuildError(f"{given}: only --limit hill-climb has rates")
    if text == "auto":
        return None
    if text == "naive":
        return Fixed(UNLIMITED)
    kind, _, number = text.partition(":")
    if kind == "fixed" and number.isdecimal() and int(number) > 0:
        return Fixed(int(number))
    raise BuildError(f"--limit {text}: say naive, fixed:N, hill-climb or auto")


def _rates(options: argparse.Namespace) -> dict[str, Any]:
    """The rates of the hill climb that are given."""
    return {
        name: rate
        for name in ("learning_rate", "exploration_rate")
        if (rate := getattr(options, name)) is not None
    }


def _summary(curve: Curve) -> str:
    totals = sorted(curve.total)
    if not totals:
        return "penstock: no job came"
    return sparks(curve) + (
        f"\npenstock: {len(totals)} jobs in {curve.done_at[-1]:.0f} s of the story; seconds in the "
        f"system: median {totals[len(totals) // 2]:.0f}, longest {totals[-1]:.0f}; at most "
        f"{max(curve.in_flight)} in flight, {max(curve.queue)} in the queue"
    )
