from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from penstock.command.kata import VARIANTS, Event, Load, Measured, Observer, kata, run_variant

# Everything is due at once: the feed never needs to sleep.
AT_ONCE = Load(rate=1e9, clients=10, duplicates=0.1, seconds=2e-7)
TEN_OF_ONE_CLIENT = Load(rate=1e9, clients=1, duplicates=0, seconds=1e-8)


class Time:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds + 1e-6


def run(name: str, load: Load, handler: Callable[[Event], object] = lambda event: None) -> Measured:
    time = Time()
    # The grace of the pools is real time, of which these handlers use next to nothing.
    return run_variant(name, load, handler, grace=10, now=time, sleep=time.sleep)


@pytest.mark.parametrize("name", VARIANTS)
def test_every_event_of_a_variant_is_accounted_for_and_no_thread_is_left(name: str) -> None:
    before = threading.active_count()
    measured = run(name, AT_ONCE)
    assert measured.variant == name
    assert measured.arrived == len(AT_ONCE) == 200
    assert measured.finished + measured.dropped + measured.lost == 200
    assert measured.unfinished == 0
    assert measured.latency.count == measured.finished
    assert threading.active_count() == before


@pytest.mark.parametrize("name", ["sequential", "naive-pool", "wait-on-concurrent"])
def test_variants_without_the_filter_work_on_duplicates(name: str) -> None:
    measured = run(name, AT_ONCE)
    assert (measured.duplicates_processed, measured.dropped) == (20, 0)


def test_the_smart_pool_works_on_no_duplicate_and_keeps_every_client_in_order() -> None:
    measured = run("smart-pool", AT_ONCE)
    assert (measured.duplicates_processed, measured.dropped) == (0, 20)
    assert (measured.overlapped, measured.overtaken, measured.lost) == (0, 0, 0)


def test_the_sequential_variant_keeps_every_client_in_order() -> None:
    measured = run("sequential", AT_ONCE)
    assert (measured.finished, measured.overlapped, measured.overtaken) == (200, 0, 0)


def test_the_sequential_variant_falls_behind_without_end() -> None:
    time = Time()
    measured = run_variant(
        "sequential", Load(seconds=2), lambda event: time.sleep(0.01), now=time, sleep=time.sleep
    )
    assert measured.throughput == pytest.approx(100, rel=0.01)
    assert measured.queue == pytest.approx(1800, abs=20)
    assert measured.unfinished == measured.arrived - measured.finished > 1600


def test_the_naive_pool_works_on_as_many_events_of_a_client_as_it_has_threads() -> None:
    all_ten = threading.Barrier(10)
    measured = run("naive-pool", TEN_OF_ONE_CLIENT, lambda event: all_ten.wait(10))
    assert (measured.finished, measured.overlapped) == (10, 9)


@pytest.mark.parametrize("name", ["naive-pool", "smart-pool"])
def test_a_pool_has_as_many_threads_as_are_asked_for(name: str) -> None:
    # One client of each thread of the smart pool; all of them are in work at once.
    load = Load(rate=1e9, clients=60, duplicates=0, seconds=6e-8)
    names: set[str] = set()
    all_twenty = threading.Barrier(20)
    met: list[int] = []

    def handler(event: Event) -> None:
        if threading.current_thread().name not in names:
            names.add(threading.current_thread().name)
            met.append(all_twenty.wait(10))

    time = Time()
    assert len({e["client_id"] % 20 for _, e in load}) == 20
    run_variant(name, load, handler, pool=20, grace=10, now=time, sleep=time.sleep)
    assert len(names) == len(met) == 20


def test_fail_on_concurrent_loses_what_arrives_while_the_client_is_busy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lost = Observer.lost
    nine_lost = threading.Event()

    def count(self: Observer, event: Event) -> None:
        lost(self, event)
        if self.measured("").lost == 9:
            nine_lost.set()

    monkeypatch.setattr(Observer, "lost", count)
    measured = run("fail-on-concurrent", TEN_OF_ONE_CLIENT, lambda event: nine_lost.wait(10))
    assert (measured.finished, measured.lost, measured.overlapped) == (1, 9, 0)


def test_wait_on_concurrent_works_on_every_event_of_a_busy_client_in_turn() -> None:
    measured = run("wait-on-concurrent", TEN_OF_ONE_CLIENT)
    assert (measured.finished, measured.lost, measured.overlapped) == (10, 0, 0)


def test_an_unknown_variant_is_refused_with_the_list_of_those_there_are() -> None:
    with pytest.raises(ValueError, match=r"'clever-pool' is not a variant .* smart-pool"):
        run_variant("clever-pool", Load())
    with pytest.raises(ValueError, match="clever-pool"):
        kata(variants=["sequential", "clever-pool"])


def test_the_kata_measures_each_named_variant_in_turn() -> None:
    runs = kata(
        rate=1e6,
        clients=2,
        duplicates=0,
        seconds=1e-5,
        handler_ms=0,
        sigma_ms=0,
        variants=["smart-pool", "sequential"],
    )
    assert [run.variant for run in runs] == ["smart-pool", "sequential"]
    assert [run.arrived for run in runs] == [10, 10]
