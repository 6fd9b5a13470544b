from __future__ import annotations

from penstock.streams.recording.key_counts import KeyCounts


def test_the_hottest_keys_are_those_with_the_most_events() -> None:
    counts = KeyCounts()
    for key, events in (("a", 1), ("b", 5), ("a", 2)):
        counts.count(key, events)
    counts.waited([{"key": "a", "waiting": 9, "age": 2.0}])
    counts.waited([{"key": "a", "waiting": 4, "age": 3.0}])
    first, second = counts.hottest(2)
    assert (first.key, first.events, first.waiting) == ("b", 5, 0)
    assert (second.key, second.events, second.waiting, second.age) == ("a", 3, 9, 3.0)
    assert counts.total == 8


def test_of_a_million_keys_two_thousand_are_counted_and_a_hot_one_is_among_them() -> None:
    counts = KeyCounts()
    for key in range(20_000):
        counts.count(key, 1)
        if key % 10 == 0:
            counts.count("hot", 1)
    assert len(counts) <= 2_000
    (hottest,) = counts.hottest(1)
    assert (hottest.key, hottest.events) == ("hot", 2_000)
