from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.command.kata import Event, Observer


class Clock:
    def __init__(self) -> None:
        self.time = 100.0

    def __call__(self) -> float:
        return self.time


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def observer(clock: Clock) -> Observer:
    return Observer(clock)


def event(
    sequence: int = 0, *, client: int = 1000, created: float = 100.0, uuid: str | None = None
) -> Event:
    identity = f"{client}-{sequence}" if uuid is None else uuid
    return Event(uuid=identity, client_id=client, created=created, sequence=sequence)


def work_on(observer: Observer, *events: Event) -> None:
    for one in events:
        observer.started(one)
        observer.finished(one)


def test_events_of_one_client_one_after_another_break_nothing(observer: Observer) -> None:
    work_on(observer, event(0), event(1), event(2))
    measured = observer.measured("x")
    assert (measured.overlapped, measured.overtaken, measured.duplicates_processed) == (0, 0, 0)


def test_an_event_that_starts_while_its_client_is_busy_overlaps(observer: Observer) -> None:
    observer.started(event(0))
    observer.started(event(1))
    observer.finished(event(0))
    observer.finished(event(1))
    assert observer.measured("x").overlapped == 1
    assert observer.measured("x").overtaken == 0


def test_events_of_different_clients_never_overlap(observer: Observer) -> None:
    observer.started(event(client=1000))
    observer.started(event(client=1001))
    assert observer.measured("x").overlapped == 0


def test_a_failed_event_makes_its_client_free(observer: Observer) -> None:
    observer.started(event(0))
    observer.failed(event(0))
    observer.started(event(1))
    assert observer.measured("x").overlapped == 0


def test_an_event_that_finishes_after_a_later_one_was_overtaken(observer: Observer) -> None:
    work_on(observer, event(1), event(0), event(2))
    assert observer.measured("x").overtaken == 1


def test_a_gap_in_the_sequence_does_not_count_as_overtaking(observer: Observer) -> None:
    work_on(observer, event(0), event(5), event(9))
    assert observer.measured("x").overtaken == 0


def test_clients_may_overtake_each_other(observer: Observer) -> None:
    work_on(observer, event(7, client=1000), event(3, client=1001))
    assert observer.measured("x").overtaken == 0


@given(st.permutations(range(8)))
def test_exactly_the_sequences_that_follow_a_greater_one_were_overtaken(order: list[int]) -> None:
    observer = Observer(Clock())
    work_on(observer, *(event(sequence) for sequence in order))
    expected = sum(
        any(earlier > sequence for earlier in order[:position])
        for position, sequence in enumerate(order)
    )
    assert observer.measured("x").overtaken == expected


@pytest.mark.parametrize(("apart", "duplicates"), [(0.0, 1), (9.999, 1), (10.0, 0), (25.0, 0)])
def test_a_uuid_started_again_is_a_duplicate_for_less_than_ten_seconds(
    observer: Observer, apart: float, duplicates: int
) -> None:
    work_on(observer, event(0, uuid="a"), event(1, uuid="a", created=100.0 + apart))
    assert observer.measured("x").duplicates_processed == duplicates


def test_a_duplicate_that_starts_before_its_original_makes_the_original_the_duplicate(
    observer: Observer,
) -> None:
    work_on(observer, event(1, uuid="a", created=105.0), event(0, uuid="a"))
    assert observer.measured("x").duplicates_processed == 1


def test_duplicates_do_not_renew_the_window(observer: Observer) -> None:
    times = (100.0, 106.0, 112.0)
    work_on(observer, *(event(n, uuid="a", created=time) for n, time in enumerate(times)))
    assert observer.measured("x").duplicates_processed == 1


def test_a_dropped_or_lost_original_makes_no_duplicate(observer: Observer) -> None:
    observer.lost(event(0, uuid="a"))
    work_on(observer, event(1, uuid="a"))
    assert observer.measured("x").duplicates_processed == 0


def test_uuids_are_forgotten_when_they_are_twice_as_old_as_the_window(observer: Observer) -> None:
    for second in range(1000):
        work_on(observer, event(second, created=float(second)))
    assert len(observer._first) == 21


def test_latency_is_creation_to_start(observer: Observer, clock: Clock) -> None:
    clock.time = 100.5
    observer.started(event(created=100.25))
    clock.time = 200.0
    observer.finished(event(created=100.25))
    assert observer.measured("x").latency.max == pytest.approx(0.25, rel=0.001)


def test_throughput_is_over_the_time_from_the_start_to_the_last_finish(
    observer: Observer, clock: Clock
) -> None:
    clock.time = 102.0
    work_on(observer, *(event(sequence) for sequence in range(10)))
    clock.time = 1000.0
    measured = observer.measured("x")
    assert (measured.seconds, measured.throughput) == (2.0, 5.0)


def test_nothing_finished_is_a_throughput_of_zero(observer: Observer) -> None:
    assert observer.measured("x").throughput == 0


def test_the_queue_is_what_the_last_arrival_found_and_its_peak_includes_the_arrivals(
    observer: Observer,
) -> None:
    observer.arrived(5)
    for sequence in range(3):
        observer.started(event(sequence))
    observer.arrived()
    measured = observer.measured("x")
    assert (measured.queue, measured.peak_queue, observer.waiting) == (2, 5, 3)


@given(st.lists(st.sampled_from(["dropped", "lost", "failed", "finished", "started", "waits"])))
def test_arrivals_are_the_sum_of_what_became_of_them(fates: list[str]) -> None:
    observer = Observer(Clock())
    observer.arrived(len(fates))
    for sequence, fate in enumerate(fates):
        if fate in ("failed", "finished", "started"):
            observer.started(event(sequence))
        if fate not in ("started", "waits"):
            getattr(observer, fate)(event(sequence))
    measured = observer.measured("x")
    assert measured.arrived == len(fates)
    assert measured.finished == fates.count("finished")
    assert measured.dropped == fates.count("dropped")
    assert measured.lost == fates.count("lost") + fates.count("failed")
    assert measured.unfinished == fates.count("started") + fates.count("waits")
    assert observer.waiting == fates.count("waits")


def test_an_interval_has_only_what_started_in_it_and_the_queue_at_its_end(
    observer: Observer, clock: Clock
) -> None:
    observer.arrived(5)
    clock.time = 100.25
    observer.started(event(0))
    first = observer.interval()
    assert (first.latency.count, first.queue) == (1, 4)
    assert first.latency.max == pytest.approx(0.25, rel=0.001)
    clock.time = 100.75
    observer.started(event(1))
    observer.started(event(2))
    second = observer.interval()
    assert (second.latency.count, second.queue) == (2, 2)
    assert second.latency.min == pytest.approx(0.75, rel=0.001)
    assert observer.interval().latency.count == 0
    assert observer.measured("x").latency.count == 3


def test_waits_for_locks_are_measured_and_absent_without_locks(observer: Observer) -> None:
    assert observer.measured("x").lock_waits is None
    observer.waited(event(), 0.5)
    observer.waited(event(), 0.0)
    waits = observer.measured("x").lock_waits
    assert waits is not None
    assert waits.count == 2
    assert waits.mean == pytest.approx(0.25, rel=0.001)


def test_the_others_are_all_but_the_slow_client(observer: Observer, clock: Clock) -> None:
    assert observer.measured("x").others is None
    watching = Observer(clock, slow_client=1000)
    clock.time = 101.0
    watching.started(event(0, client=1000))
    clock.time = 102.0
    watching.started(event(0, client=1001))
    others = watching.measured("x").others
    assert others is not None
    assert others.count == 1
    assert others.max == pytest.approx(2, rel=0.001)
    assert watching.measured("x").latency.count == 2


def test_overlaps_and_overtakings_are_counted_for_each_client(observer: Observer) -> None:
    for one in (event(0), event(1), event(0, client=1001), event(2)):
        observer.started(one)
    for one in (event(2), event(1), event(0)):
        observer.finished(one)
    measured = observer.measured("x")
    assert measured.overlaps == {1000: 2}
    assert measured.overtakings == {1000: 2}
    assert (measured.overlapped, measured.overtaken) == (2, 2)


def test_a_dropped_event_that_is_worked_on_all_the_same_does_not_wait_twice(
    observer: Observer,
) -> None:
    observer.arrived(2)
    observer.dropped(event(0))
    assert observer.waiting == 1
    observer.kept(event(0))
    observer.started(event(0))
    assert observer.waiting == 1
    assert observer.measured("x").dropped == 0
