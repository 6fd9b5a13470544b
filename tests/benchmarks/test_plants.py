"""What the comparison with the best fixed limit measures."""

from __future__ import annotations

import asyncio

import pytest

from benchmarks.plants.http_server import Slots
from benchmarks.plants.plant import Figures, Phase, average, measure
from streams import Fixed
from streams.limits import default
from streams.testing.plugin import Run


class Servers:
    """So many calls at once, each of a tenth of a second; the others wait in line."""

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

    async def story() -> list[Figures]:
        await servers.open()
        return await measure(servers, Fixed(limit), (servers.serves(8),), 1, 10)

    (figures,) = run(story())
    assert figures.rate == pytest.approx(rate, rel=0.02)
    assert figures.p99 == pytest.approx(p99)
    assert figures.limit == limit


def test_a_running_goes_through_the_phases_without_a_break_and_each_is_measured(run: Run) -> None:
    servers = Servers(8)

    async def story() -> list[Figures]:
        await servers.open()
        phases = (servers.serves(8), servers.serves(24), servers.serves(8))
        return await measure(servers, default(), phases, 10, 20)

    few, many, few_again = run(story())
    assert few.rate == pytest.approx(80, rel=0.1)
    assert many.rate == pytest.approx(240, rel=0.1)
    assert few_again.rate == pytest.approx(80, rel=0.1)


def test_the_figures_of_rounds_are_averaged() -> None:
    assert average([Figures(10, 0.2, 3), Figures(30, 0.4, 4)]) == pytest.approx((20, 0.3, 3.5))


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
