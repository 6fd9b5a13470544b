"""Look-ups of random events in random tables: against each row for each event, and with crashes at
any moments.

The oracle knows nothing of lists, demand, handlers and states: it has each event and each row with
the greatest time before it in its stream, and finds the row from its definition.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from penstock import Flowable, Pipeline, Store, from_iterable, lookup, read_jsonl, table
from penstock.streams.event_time import line
from penstock.streams.testing import MemorySink, run_virtual
from tests.helpers.walks import seeds
from tests.unit.streams.joins.test_walk import Side, check_with_crashes, written


class Story:
    """Events and a table, and what has come out."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.chance = chance = random.Random(seed)
        keys = chance.randint(1, 3)
        self.events, self.rows = Side(chance, keys), Side(chance, keys)
        for n, row in enumerate(self.rows.events):
            # No two of one time.
            row["at"] += n / 1024
        self.wait = float(chance.choice([0, 0, 1, 5, 30]))
        self.keep = float(chance.choice([0, 0, 3, 10]))
        self.results: list[Any] = []

    def expected(self) -> list[tuple[int, int]]:
        rows = [
            (max(one.row["at"], one.watermark), one.row["at"], one.row)
            for one in self.rows.emitted()
        ]
        found: list[tuple[int, int]] = []
        for event, watermark in self.events.emitted():
            at = event["at"]
            if at + self.keep < watermark:
                continue
            until = at + self.wait
            own = [
                (begin, time, row["n"])
                for begin, time, row in rows
                if row["key"] == event["key"] is not None and time <= at and begin <= until
            ]
            in_time = [one for one in own if one[0] <= at]
            first = min((begin for begin, *_ in own), default=None)
            seen = in_time or [one for one in own if one[0] == first]
            found.append((event["n"], max(seen, key=lambda one: one[1])[2] if seen else -1))
        return sorted(found)

    def pipeline(
        self, left: Flowable[Any], right: Flowable[Any], store: Store | None, seed: int
    ) -> Pipeline:
        moods = random.Random(seed)
        rows = table(self.rows.stream(right, moods), "key", self.keep, store=store)
        sink = MemorySink(seconds=moods.choice([0, 0.004]))
        sink.accepted = self.results
        found = lookup(rows, "key", wait=self.wait, name="rows")
        return self.events.stream(left, moods).pipe(found).to(sink)

    def found(self) -> list[tuple[int, int]]:
        return sorted((event["n"], row["n"] if row else -1) for _, (event, row) in self.results)


@seeds(1000)
def test_rows_are_those_of_their_definition(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line, "_LEAD", random.Random(seed).choice([1, 3, 500]))
    story = Story(seed)
    left, right = (from_iterable(side.events) for side in (story.events, story.rows))
    run_virtual(story.pipeline(left, right, None, seed).run())
    assert story.found() == story.expected()


@seeds(2000)
def test_rows_are_the_same_with_crashes(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line, "_LEAD", random.Random(seed).choice([1, 3, 500]))
    story = Story(seed)
    paths = [tmp_path / name for name in ("events.jsonl", "rows.jsonl")]
    for path, side in zip(paths, (story.events, story.rows), strict=True):
        written(side, path)

    def sources(store: Store) -> list[Flowable[Any]]:
        return [read_jsonl(path, position=store) for path in paths]

    left = check_with_crashes(story, sources, bool)
    for row in left:
        kept, waiting = json.loads(row.state)
        assert (len(kept), waiting) == (1, [])
