from __future__ import annotations

from statistics import fmean

from benchmarks.limits.lists import goodputs, limiter
from benchmarks.limits.scenarios import PLANTS
from benchmarks.limits.simulate import simulate


def test_goodput_is_the_same_where_the_default_hears_of_completions_in_lists() -> None:
    # A single run may differ by a tenth, in either direction: after one different step everything
    # differs.
    ratios: dict[str, float] = {}
    for scenario in PLANTS:
        late, soon = (
            [
                goodput
                for seed in range(1, 9)
                for goodput in goodputs(
                    scenario, simulate(scenario, limiter(seed, in_lists=in_lists), 0.4, seed)
                )
            ]
            for in_lists in (True, False)
        )
        ratios[scenario.name] = fmean(late) / fmean(soon)
    assert abs(fmean(ratios.values()) - 1) < 0.01, ratios
