"""A subject, or another observer of reactivex, as a sink."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

import pytest
from reactivex import Observer
from reactivex.abc import ObserverBase
from reactivex.subject import ReplaySubject, Subject

from penstock import adaptive_flat_map, for_each, from_iterable
from penstock.streams.base.errors import BuildError, PenstockError
from penstock.streams.testing import ManualPublisher, MemorySource
from penstock.streams.testing.plugin import Run


class Heard(Observer[Any]):
    """An observer that notes its signals."""

    def __init__(self) -> None:
        self.signals: list[Any] = []
        super().__init__(
            self.signals.append,
            lambda error: self.signals.append(error),
            lambda: self.signals.append("completed"),
        )


def test_a_subject_sends_what_the_stream_has_and_its_end(run: Run) -> None:
    subject: Subject[int] = Subject()
    heard = Heard()
    subject.subscribe(heard)
    report = run(from_iterable([1, 2, 3]).to(subject).run())
    assert heard.signals == [1, 2, 3, "completed"]
    assert report.statistics["finished"] == 3


def test_a_subject_may_stand_beside_other_sinks(run: Run) -> None:
    subject, seen = ReplaySubject[int](), list[int]()
    run(from_iterable([1, 2]).to(for_each(seen.append), subject).run())
    heard = Heard()
    subject.subscribe(heard)
    assert (seen, heard.signals) == ([1, 2], [1, 2, "completed"])


def test_an_error_of_the_stream_reaches_the_observer_and_whoever_runs_it(run: Run) -> None:
    heard, error = Heard(), ValueError("bad")

    def fail(number: int) -> int:
        if number == 2:
            raise error
        return number

    with pytest.raises(ValueError, match="bad"):
        run(from_iterable([1, 2, 3]).pipe(adaptive_flat_map(fail)).to(heard).run())
    assert heard.signals == [1, error]


def test_an_event_is_finished_when_the_observer_has_accepted_it_and_failed_when_it_raises(
    run: Run,
) -> None:
    heard: list[int] = []

    def accept(number: int) -> None:
        if number == 3:
            raise ValueError("no 3")
        heard.append(number)

    ends: list[str] = []
    observer = Observer[int](accept, lambda _: ends.append("error"), lambda: ends.append("end"))
    source = MemorySource([1, 2, 3, 4])
    with pytest.raises(ValueError, match="no 3"):
        run(source.to(observer).run())
    assert (source.acked, source.failed) == ([1, 2], [3])
    assert (heard, ends) == ([1, 2], [])


def test_a_drain_completes_the_observer_and_a_cancel_is_no_signal(run: Run) -> None:
    async def story(drained: Heard, cancelled: Heard) -> None:
        publisher: ManualPublisher[int] = ManualPublisher()
        async with publisher.to(drained).start() as running:
            await asyncio.sleep(0)
            publisher.send(1)
            await running.drain()
        other: ManualPublisher[int] = ManualPublisher()
        async with other.to(cancelled).start() as running:
            await asyncio.sleep(0)
            other.send(1)
            running.cancel()

    drained, cancelled = Heard(), Heard()
    run(story(drained, cancelled))
    assert drained.signals == [1, "completed"]
    assert cancelled.signals == [1]


def test_what_an_observer_raises_at_the_end_stops_the_pipeline(run: Run) -> None:
    def end() -> None:
        raise ValueError("at the end")

    with pytest.raises(ValueError, match="at the end"):
        run(from_iterable([1]).to(Observer[int](None, None, end)).run())


def test_the_observer_is_shown_as_the_sink() -> None:
    sink = from_iterable([1]).to(Subject[int]()).describe()[-1]
    assert (sink.name, sink.detail) == ("observer", "Subject")


@pytest.mark.parametrize("end", ["on_completed", "dispose"])
def test_an_observer_that_has_ended_is_refused_before_anything_is_read(run: Run, end: str) -> None:
    subject: Subject[int] = Subject()
    getattr(subject, end)()
    source = MemorySource([1, 2])
    with pytest.raises(BuildError, match=r"Subject has ended.*make one for each run"):
        run(source.to(subject).run())
    assert (source.acked, source.failed) == ([], [])


def test_a_second_run_into_the_same_subject_is_refused(run: Run) -> None:
    pipeline = from_iterable([1, 2]).to(Subject[int]())
    run(pipeline.run())
    with pytest.raises(BuildError, match="has ended"):
        run(pipeline.run())


@pytest.mark.parametrize("end", ["on_completed", "dispose"])
def test_an_event_for_an_observer_that_has_ended_in_the_middle_fails(run: Run, end: str) -> None:
    subject: Subject[int] = Subject()
    heard: list[int] = []

    def hear(number: int) -> None:
        heard.append(number)
        if number == 2:
            getattr(subject, end)()

    subject.subscribe(hear)
    source = MemorySource([1, 2, 3, 4])
    with pytest.raises(PenstockError, match="Subject has ended"):
        run(source.to(subject).run())
    assert heard == [1, 2]
    assert (source.acked, source.failed) == ([1, 2], [3])


def test_an_observer_that_does_not_say_whether_it_has_ended_gets_every_event(run: Run) -> None:
    class Plain(ObserverBase[int]):
        heard: ClassVar[list[int]] = []

        def on_next(self, value: int) -> None:
            self.heard.append(value)

        def on_error(self, error: Exception) -> None:
            raise error

        def on_completed(self) -> None:
            pass

    run(from_iterable([1, 2]).to(Plain()).run())
    assert Plain.heard == [1, 2]
