"""What holds in every pipeline, held against pipelines that are made and treated by chance."""

from __future__ import annotations

import _thread
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import combinations

import pytest

from tests.random_walk import FEATURES, RandomWalk

# How often each two of the features meet, of 10,000 walks; fewer walks, fewer times.
TIMES, OF = 50, 10_000

# Seconds of real time that no walk takes; the longest ones take less than one.
LONG = 120.0


@contextmanager
def ends(seconds: float) -> Iterator[None]:
    """AssertionError for a block that has not ended by then: virtual time cannot stop a loop."""
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
    met: Counter[tuple[str, str]] = Counter(dict.fromkeys(combinations(FEATURES, 2), 0))
    for number in numbers:
        walk = RandomWalk(f"{option.seed} {number}")
        try:
            with ends(LONG):
                walk.run()
        except BaseException as error:
            error.add_note(f"--seed {option.seed} --walk {number}\n{walk}")
            raise
        met.update(pair for pair in combinations(FEATURES, 2) if walk.met.issuperset(pair))
    print(f"of {len(numbers):,} walks:")
    for (one, other), times in sorted(met.items(), key=lambda pair: pair[1]):
        print(f"{times:7,}  {one} x {other}")
    rare = {pair: times for pair, times in met.items() if times * OF < TIMES * len(numbers)}
    assert not rare or len(numbers) < OF, f"of {len(numbers):,} walks too few met in {rare}"
