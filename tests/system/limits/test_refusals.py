"""The default limiter on services that refuse calls above their capacity, with retries."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import pairwise
from statistics import fmean

import pytest

from benchmarks.limits.refusals import Refused, Service, judge, work

SEEDS = range(100, 120)


@pytest.mark.parametrize("places", [5, 20, 100])
@pytest.mark.parametrize(("overload", "refused"), [(True, 0.05), (False, 0.10)])
def test_the_limit_settles_below_the_number_at_which_refusals_begin(
    places: int, overload: bool, refused: float
) -> None:
    judged = [judge(places, seed, overload=overload) for seed in SEEDS]
    assert min(judgement.goodput for judgement in judged) >= 0.90
    assert max(judgement.refused for judgement in judged) <= refused


class Queueing(Service):
    """Refuses nothing: calls without a free place wait."""

    def __init__(self, places: int, seed: int, *, broken: float) -> None:
        super().__init__(1_000_000, seed, broken=broken)
        self._free = asyncio.Semaphore(places)

    async def __call__(self, number: int) -> int:
        async with self._free:
            return await super().__call__(number)


def settled_limit(service: Service) -> float:
    """The mean limit of 7 seconds, after 5 in which it may settle."""
    begin, end = 5.0, 12.0
    changes = [(0.0, 1)]

    def note(old: int, new: int, why: str) -> None:
        changes.append((asyncio.get_running_loop().time(), new))

    work(service, None, end, on_limit_change=note)
    weighted = 0.0
    for (since, limit), (until, _) in pairwise([*changes, (end, 0)]):
        weighted += limit * max(0.0, until - max(since, begin))
    return weighted / (end - begin)


@pytest.mark.parametrize("service", [Queueing, Service], ids=["that queues", "that refuses"])
def test_errors_that_have_nothing_to_do_with_load_have_no_effect_on_the_limit(
    service: Callable[..., Service],
) -> None:
    without, broken = (
        fmean(settled_limit(service(20, seed, broken=share)) for seed in SEEDS)
        for share in (0.0, 0.05)
    )
    assert broken == pytest.approx(without, rel=0.10)


def test_a_quota_is_used_up_and_hardly_exceeded_where_overload_says_when_to_go_on() -> None:
    def until_the_next_second(error: Exception) -> bool | float:
        return 1 - asyncio.get_running_loop().time() % 1 if isinstance(error, Refused) else False

    quota, seconds, settled = 40, 20.0, 7.0
    for seed in SEEDS:
        service = Service(1000, seed, quota=quota)
        work(service, None, seconds, overload=until_the_next_second)
        ends = [success for time, success in service.ends if time > settled]
        assert sum(ends) >= 0.90 * quota * (seconds - settled)
        assert ends.count(False) <= 0.10 * len(ends)
