"""What `penstock draw` prints is an upper bound of the events that are unfinished at once."""

from __future__ import annotations

import random
from collections import Counter
from itertools import count

import pytest

from penstock.command.pipelines.draw import as_text
from penstock.streams.testing import run_virtual
from tests.helpers.random_pipeline import FEATURES, RandomPipeline

# One in so many of the --walks is how often each of the features is made.
SHARE = 15


def test_what_draw_prints_is_an_upper_bound_of_unfinished_events(
    pytestconfig: pytest.Config,
) -> None:
    """A random walk over pipelines, until each of the features was made 20 times.

    `make soak` makes more of them.

    `--seed` gives the same ones again.
    """
    seed = pytestconfig.option.seed
    times = pytestconfig.option.walks // SHARE
    made_of: Counter[str] = Counter()
    near = 0
    for number in count():
        if all(made_of[feature] >= times for feature in FEATURES):
            break
        made = RandomPipeline(random.Random(f"{seed} {number}"))
        made_of.update(made.features)
        text = as_text(made.pipeline.describe(made.limit), len(made.pipeline.sinks))
        try:
            run_virtual(made.run())
        except Exception as error:
            error.add_note(f"pipeline {number}\n{text}")
            raise
        assert made.peak <= made.most, f"pipeline {number}: {made.peak:,} unfinished\n{text}"
        near += made.peak * 2 > made.most
    print(f"of {number} pipelines:", dict(made_of), f"more than half full: {near}")
