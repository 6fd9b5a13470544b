"""The measurements of the comparison with the best fixed limit."""

from __future__ import annotations

import asyncio

import pytest

from benchmarks.plants.http_server import Slots
from benchmarks.plants.plant import Contestant, Figures, Phase, contest, typical
from penstock import Fixed
from penstock.streams.limits import default
from penstock.streams.testing.plugin import Run


class Servers:
    """A number of calls at once, each of a tenth of a second; the others wait in line."""

    def __init__(self, number: int) -> None:
        self._number = number

    def serves(self, number: int) -> Phase:
        """The phase that begins when the number changes."""

        async def begin() -> None:
            self.slots.change(number)

        return Phase(f"{number} servers", begin, (number,))

    async def __call__(self, value: int) -> None:
        await self.slots.take()
        try:
            await asyncio.sleep(0.1)
        finally:
            self.slots.give_back()

    async def open(self) -> None:
        """Waiting needs a loop."""
        self.slots = Slots(self._number)


@pytest.mark.parametrize(("limit", "rate", "p99"), [(4, 40, 0.1), (8, 80, 0.1), (16, 80, 0.2)])
def test_a_limit_is_measured_by_its_calls_a_second_and_their_slowest(
    run: Run, limit: int, rate: float, p99: float
) -> None:
    servers = Servers(8)

    async def story() -> Figures:
        await servers.open()
        async with Contestant(servers, Fixed(limit)).opened() as contestant:
            return await contestant.work(1, 10)

    figures = run(story())
    assert figures.rate == pytest.approx(rate, rel=0.02)
    assert figures.p99 == pytest.approx(p99)
    assert figures.limit == limit


def test_of_two_that_alternate_one_is_idle_while_the_other_works(run: Run) -> None:
    servers = Servers(8)

    async def story() -> list[list[Figures]]:
        await servers.open()
        one, other = Contestant(servers, Fixed(8)), Contestant(servers, Fixed(4))
        async with one.opened(), other.opened():
            return await contest([one, other], 3, 1, 10)

    # Together they would have 80 calls a second.
    for slices, rate in zip(run(story()), (80, 40), strict=True):
        assert [part.rate for part in slices] == pytest.approx([rate] * 3, rel=0.02)


def test_the_default_follows_the_plant_in_its_slices(run: Run) -> None:
    servers = Servers(8)

    async def story() -> list[float]:
        await servers.open()
        rates = list[float]()
        async with Contestant(servers, default()).opened() as found:
            for number in (8, 24, 8):
                await servers.serves(number).begin()
                for _ in range(3):
                    rates.append((await found.work(10, 10)).rate)
                    await asyncio.sleep(30)
        return rates

    few, many, few_again = run(story())[2::3]
    assert few == pytest.approx(80, rel=0.1)
    assert many == pytest.approx(240, rel=0.1)
    assert few_again == pytest.approx(80, rel=0.1)


def test_the_typical_figures_of_slices_are_their_medians() -> None:
    slices = [Figures(10, 0.2, 3), Figures(30, 0.4, 4), Figures(20, 9.9, 5)]
    assert typical(slices) == (20, 0.4, 4)


def test_slots_let_in_who_came_first_and_as_many_as_they_are_now(run: Run) -> None:
    servers, done = Servers(1), list[int]()

    async def call(value: int) -> None:
        await servers(value)
        done.append(value)

    async def story() -> None:
        await servers.open()
        calls = [asyncio.ensure_future(call(value)) for value in range(6)]
        await asyncio.sleep(0.15)
        assert done == [0]
        servers.slots.change(3)
        await asyncio.sleep(0.12)
        assert done == [0, 1, 2, 3]
        servers.slots.change(1)
        await asyncio.gather(*calls)

    run(story())
    assert done == list(range(6))
