"""What holds in every graph of streams, checked on random graphs with random disturbances."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.contract.test_random_walk import FEW, LONG, ends
from tests.helpers.random_streams import FEATURES, RandomStreams


def test_nothing_is_lost_in_streams_that_are_combined_shared_and_read_inside_each_other(
    pytestconfig: pytest.Config,
) -> None:
    """`--walks` says how many; `--seed` gives the same ones again, `--walk` one of them alone."""
    option = pytestconfig.option
    numbers = range(option.walks) if option.walk is None else [option.walk]
    met: Counter[str] = Counter(dict.fromkeys(FEATURES, 0))
    for number in numbers:
        walk = RandomStreams(f"{option.seed} {number}")
        try:
            with ends(LONG):
                walk.run()
        except BaseException as error:
            error.add_note(f"--seed {option.seed} --walk {number}\n{walk}")
            raise
        met.update(walk.met)
    print(f"of {len(numbers):,} walks:")
    for feature in sorted(FEATURES, key=met.__getitem__):
        print(f"{met[feature]:7,}  {feature}")
    if len(numbers) >= FEW:
        assert all(met[feature] * 100 >= len(numbers) for feature in FEATURES), met
