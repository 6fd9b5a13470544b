"""The default limiter on services that refuse what is one too many, with retries."""

from __future__ import annotations

import asyncio

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


def test_errors_that_have_nothing_to_do_with_load_have_no_effect_on_the_limit() -> None:
    def highest(broken: float, seed: int) -> int:
        limits = [1]
        service = Service(20, seed, broken=broken)
        work(service, None, 10.0, on_limit_change=lambda old, new, why: limits.append(new))
        settled = limits[len(limits) // 2 :]
        return max(settled)

    assert [highest(0.05, seed) for seed in SEEDS] == pytest.approx(
        [highest(0.0, seed) for seed in SEEDS], abs=1
    )


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
