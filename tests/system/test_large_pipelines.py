"""Pipelines with the default bounds, and more events than these admit."""

from __future__ import annotations

import random

from penstock.command.pipelines.draw import as_text
from penstock.streams.testing import run_virtual
from tests.helpers.random_pipeline import RandomPipeline

PIPELINES = 8


def test_large_pipelines_end_and_hold_no_more_than_draw_prints(run_seed: int) -> None:
    for number in range(PIPELINES):
        made = RandomPipeline(random.Random(f"{run_seed} {number}"), large=True)
        drawn = as_text(made.pipeline.describe(made.limit), len(made.pipeline.sinks))
        text = f"pipeline {number}\n{drawn}"
        try:
            run_virtual(made.run())
        except Exception as error:
            error.add_note(text)
            raise
        assert made.peak <= made.most, f"{made.peak:,} unfinished in {text}"
