"""What holds in every pipeline, checked on random pipelines with random disturbances."""

from __future__ import annotations

import _thread
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import combinations
from typing import Any

import pytest

from tests.helpers.random_walk import FEATURES, RandomWalk

# How often any two of the features meet at least, per number of walks. All pairs can.
TIMES, OF = 50, 10_000
# From this many walks on, each feature is in at least one of 30.
FEW = 300

# Seconds of real time that no walk needs; the longest ones take less than one.
LONG = 120.0


@contextmanager
def ends(seconds: float) -> Iterator[None]:
    """AssertionError if the block has not ended in time: virtual time cannot stop a loop."""
    late: list[bool] = []

    def stop() -> None:
        late.append(True)
        _thread.interrupt_main()

    timer = threading.Timer(seconds, stop)
    timer.daemon = True
    timer.start()
    try:
        yield
    except KeyboardInterrupt:
        if late:
            raise AssertionError(f"it did not end in {seconds:g} s") from None
        raise
    finally:
        timer.cancel()
        timer.join()


def test_what_goes_in_comes_to_its_end_once_and_in_order_whatever_meets_in_a_pipeline(
    pytestconfig: pytest.Config,
) -> None:
    """`--walks` says how many; `--seed` gives the same ones again, `--walk` one of them alone."""
    option = pytestconfig.option
    numbers = range(option.walks) if option.walk is None else [option.walk]
    pairs = list(combinations(FEATURES, 2))
    met: Counter[Any] = Counter(dict.fromkeys((*FEATURES, *pairs), 0))
    for number in numbers:
        walk = RandomWalk(f"{option.seed} {number}")
        try:
            with ends(LONG):
                walk.run()
        except BaseException as error:
            error.add_note(f"--seed {option.seed} --walk {number}\n{walk}")
            raise
        met.update(walk.met)
        met.update(pair for pair in pairs if walk.met.issuperset(pair))
    print(f"of {len(numbers):,} walks:")
    for pair in sorted(pairs, key=met.__getitem__):
        print(f"{met[pair]:7,}  {pair[0]} x {pair[1]}")
    if len(numbers) >= FEW:
        # A function that raises or cancels ends its walk, before it can meet much else.
        every = (*FEATURES, "breaking function")
        assert all(met[feature] * 30 >= len(numbers) for feature in every), met
    if len(numbers) >= OF:
        assert all(met[pair] * OF >= TIMES * len(numbers) for pair in pairs), met


@pytest.mark.parametrize(
    "walk", ["2912 790", "2913 1577", "2915 379", "2917 427", "360 826", "361002 6903"]
)
def test_walks_that_have_found_a_fault_find_it_no_more(walk: str) -> None:
    with ends(LONG):
        RandomWalk(walk).run()
