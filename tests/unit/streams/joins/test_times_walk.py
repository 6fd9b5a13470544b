"""Windows and joins directly behind joins of random pairs of streams: against what the definition
of the pairs gives, and with crashes at any moments.

The oracle knows nothing of watermarks below a join: none of its results is late there.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from penstock import (
    Fixed,
    Flowable,
    Pipeline,
    Store,
    adaptive_flat_map,
    agg,
    from_iterable,
    join,
    ops,
    tumbling,
    window,
)
from penstock.streams.event_time import line
from penstock.streams.testing import MemorySink, run_virtual
from tests.helpers.walks import seeds
from tests.unit.streams.joins.test_walk import Side, Story, check_files, check_partitions

_Pair = tuple[int, int]


def _numbers(pair: Any) -> Any:
    return [-1 if row is None else row["n"] for row in pair]


class TimedStory(Story):
    """What is counted of the results of a join, by their times."""

    def __init__(self, seed: int, partitions: int = 1) -> None:
        super().__init__(seed, partitions)
        self.length = float(self.chance.choice([1, 5, 20]))
        self.by_key = self.chance.random() < 0.5
        self.is_slow = self.chance.random() < 0.5

    def timed_pairs(self) -> list[tuple[float, _Pair]]:
        """The results of the join, with the lesser time of their rows."""
        sides = self.left.events, self.right.events
        return [
            (min(rows[n]["at"] for rows, n in zip(sides, pair, strict=True) if n >= 0), pair)
            for pair in super().expected()
        ]

    def _key_of(self, pair: _Pair) -> Any:
        one, other = pair
        return (self.left.events[one] if one >= 0 else self.right.events[other])["key"]

    def expected(self) -> list[Any]:
        windows: dict[Any, list[_Pair]] = defaultdict(list)
        for time, pair in self.timed_pairs():
            key = self._key_of(pair) if self.by_key else None
            windows[str(key), time // self.length * self.length].append(pair)
        return sorted((*at, tuple(sorted(pairs))) for at, pairs in windows.items())

    def found(self) -> list[Any]:
        return sorted(
            (str(one.key), one.start, tuple(sorted((left, right) for left, right in one.value)))
            for _, one in self.results
        )

    def joined(
        self, left: Flowable[Any], right: Flowable[Any], store: Store | None, moods: random.Random
    ) -> Flowable[Any]:
        other = self.right.stream(right, moods)
        pairs = join(other, by="key", within=self.within, how=self.how, store=store, name="rows")

        async def work(pair: Any) -> Any:
            if moods.random() < 0.7:
                await asyncio.sleep(moods.choice([0, 0.001, 0.01, 0.3]))
            return pair

        stages: list[Any] = [pairs]
        if self.is_slow:
            stages.append(adaptive_flat_map(work, Fixed(3)))
        return self.left.stream(left, moods).pipe(*stages)

    def pipeline(
        self, left: Flowable[Any], right: Flowable[Any], store: Store | None, seed: int
    ) -> Pipeline:
        moods = random.Random(seed)

        def key(pair: Any) -> Any:
            return next(row["key"] for row in pair if row is not None)

        pairs_of = window(
            tumbling(self.length),
            agg.list(_numbers, most=10**6),
            by=key if self.by_key else None,
            store=store,
            name="windows",
        )
        sink = MemorySink(seconds=moods.choice([0, 0.004]))
        sink.accepted = self.results
        return self.joined(left, right, store, moods).pipe(pairs_of).to(sink)


class JoinedStory(TimedStory):
    """A join of the results of a join with a third stream."""

    def __init__(self, seed: int, partitions: int = 1) -> None:
        super().__init__(seed, partitions)
        self.third = Side(self.chance, 2)
        self.within_third = float(self.chance.choice([0, 1, 3, 10, 40]))

    def expected(self) -> list[Any]:
        third = [
            one
            for one in self.third.emitted()
            if one.row["at"] + self.within_third >= one.watermark and one.row["key"] is not None
        ]
        found: list[Any] = []
        for time, pair in self.timed_pairs():
            key = self._key_of(pair)
            partners = [
                one.row["n"]
                for one in third
                if one.row["key"] == key
                and abs(one.row["at"] - time) <= self.within_third
                and one.watermark <= min(one.row["at"], time) + self.within_third
            ]
            found += [(*pair, n) for n in partners or [-1]]
        return sorted(found)

    def found(self) -> list[Any]:
        return sorted(
            (*_numbers(pair), -1 if third is None else third["n"])
            for _, (pair, third) in self.results
        )

    def pipeline(
        self, left: Flowable[Any], right: Flowable[Any], store: Store | None, seed: int
    ) -> Pipeline:
        moods = random.Random(seed)

        def key(row: Any) -> Any:
            # Of the third stream, or a list of two.
            rows: list[Any] = [row] if isinstance(row, dict) else row
            return next(one["key"] for one in rows if one is not None)

        third: Flowable[Any] = self.third.stream(from_iterable(self.third.events), moods)
        lists = ops.map(list)
        joined = join(third, key, self.within_third, how="left", store=store, name="third")
        sink = MemorySink(seconds=moods.choice([0, 0.004]))
        sink.accepted = self.results
        return self.joined(left, right, store, moods).pipe(lists, joined).to(sink)


def late_in(statistics: Any) -> int:
    """How many events were late in the last stage with times."""
    *_, late = (stage["late"] for stage in statistics["stages"] if "late" in stage)
    return int(late)


@seeds(3000)
@pytest.mark.parametrize("kind", [TimedStory, JoinedStory])
def test_what_is_behind_a_join_has_each_result_at_its_time(
    kind: type[TimedStory], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line, "_LEAD", random.Random(seed).choice([1, 3, 500]))
    story = kind(seed)
    left, right = (from_iterable(side.events) for side in (story.left, story.right))
    report = run_virtual(story.pipeline(left, right, None, seed).run())
    assert story.found() == story.expected()
    if kind is TimedStory:
        assert late_in(report.statistics) == 0


@seeds(1500)
def test_windows_behind_a_join_are_the_same_with_crashes(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_files(TimedStory, seed, tmp_path, monkeypatch)


@seeds(500)
def test_windows_behind_a_join_with_a_stream_of_partitions_are_the_same_with_crashes(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_partitions(TimedStory, seed, tmp_path, monkeypatch)
