"""Santa's mailbox: letters in batches, CPU-bound work, and a limit that tunes itself.

    penstock run examples/santa.py -- 12        # twelve batches

Every half second 0 to 10 letters arrive; each is a number to factorize, as in the article, which
keeps a core busy for about a quarter of a second. `adaptive_flat_map` tunes how many to process at
once, and reports each change. Pass `Fixed(4)` or `HillClimb()` of `penstock.streams.limits` as its
second argument to see what the article saw. `penstock santa` runs the whole story, with its log
lines and a plot.

Source: Mathias Brandewinder, "Santa's Mailbox", 4 December 2019,
https://brandewinder.com/2019/12/04/santas-mailbox/
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import AsyncIterator
from typing import NamedTuple

from penstock import adaptive_flat_map, for_each, from_async_iterable, in_processes

BATCHES = int(sys.argv[1]) if len(sys.argv) > 1 else 20
NUMBER = 2_130_061  # a prime


class Letter(NamedTuple):
    batch: int
    number: int
    value: int


def factorize(letter: Letter) -> tuple[Letter, list[int]]:
    """The prime factors of the letter's value, by trial division."""
    factors, factor, rest = [1], 2, letter.value
    while factor <= rest:
        if rest % factor == 0:
            factors.insert(0, factor)
            rest //= factor
        else:
            factor += 1
    return letter, factors


async def letters() -> AsyncIterator[Letter]:
    """`batches` batches, one every half second."""
    sizes = random.Random(0)
    for batch in range(1, BATCHES + 1):
        for number in range(1, sizes.randint(0, 10) + 1):
            yield Letter(batch, number, NUMBER)
        await asyncio.sleep(0.5)


def tell(old: int, new: int, why: str) -> None:
    print(f"limit: {old} -> {new} ({why})")


def done(result: tuple[Letter, list[int]]) -> None:
    letter, factors = result
    print(f"Completed batch {letter.batch} job {letter.number}: {factors}")


pipeline = (
    from_async_iterable(letters)
    .pipe(adaptive_flat_map(in_processes(8)(factorize), on_limit_change=tell))
    .to(for_each(done))
)
