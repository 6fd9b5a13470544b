"""The end of sinks."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.streams.protocol.acknowledgement import Nobody
from penstock.streams.protocol.event import Event
from penstock.streams.stages.own import SinkStage

BROKEN = ValueError("broken")
OTHER = ValueError("other")


class Above:
    """What a sink has asked of the stage above it."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def request(self, n: int, /) -> None:
        self.calls.append("request")

    def cancel(self) -> None:
        self.calls.append("cancel")


class Later(SinkStage[Any]):
    """Keeps what it has accepted until it is written."""

    def __init__(self, closed: list[BaseException | None]) -> None:
        super().__init__(closed.append)
        self.kept: list[Event[Any]] = []

    def on_events(self, events: list[Event[Any]], /) -> None:
        self.kept += events

    def write(self) -> None:
        self.kept.pop().finish()
        self.end_if_idle()

    @property
    def is_idle(self) -> bool:
        return not self.kept

    def give_back(self) -> None:
        while self.kept:
            self.kept.pop().give_back()


def sink(*values: int) -> tuple[Later, Above, list[BaseException | None]]:
    closed: list[BaseException | None] = []
    made, above = Later(closed), Above()
    made.on_subscribe(above)
    if values:
        made.on_events([Event(value, 0.0, Nobody()) for value in values])
    return made, above, closed


@pytest.mark.parametrize("error", [None, BROKEN])
def test_a_sink_closes_when_the_stream_has_ended_and_all_is_written(
    error: BaseException | None,
) -> None:
    made, above, closed = sink(1)
    if error is None:
        made.on_completed()
    else:
        made.on_error(error)
    assert closed == []
    made.write()
    assert closed == [error]
    assert above.calls == ["request"]


def test_a_sink_that_is_idle_before_the_end_stays_open() -> None:
    made, _, closed = sink(1)
    made.write()
    assert closed == []
    made.on_completed()
    assert closed == [None]


def test_a_sink_that_cannot_go_on_cancels_returns_what_it_has_and_closes_once() -> None:
    made, above, closed = sink(1, 2)
    made.break_off(BROKEN)
    made.break_off(OTHER)
    made.close()
    made.cancel()
    assert (closed, above.calls, made.kept) == ([BROKEN], ["request", "cancel"], [])


def test_a_sink_that_cannot_go_on_after_the_end_cancels_nothing() -> None:
    made, above, closed = sink(1)
    made.on_completed()
    made.break_off(BROKEN)
    assert (closed, above.calls, made.kept) == ([BROKEN], ["request"], [])


def test_what_comes_to_a_sink_that_was_closed_before_it_was_connected_is_not_requested() -> None:
    closed: list[BaseException | None] = []
    made, above = Later(closed), Above()
    made.cancel()
    made.on_subscribe(above)
    assert (closed, above.calls) == ([None], ["cancel"])
