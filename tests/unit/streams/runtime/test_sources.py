"""The sources of a running pause together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.streams.runtime.sources import Pauses


class Source:
    """Says whether it is paused, and does something when it goes on."""

    is_pushed = False
    is_of_values = False
    has_ended = False

    def __init__(self, goes_on: Callable[[], object] = lambda: None) -> None:
        self.paused = False
        self._goes_on = goes_on

    def statistics(self) -> dict[str, Any]:
        return {}

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False
        self._goes_on()

    def stop(self) -> None: ...


def paused(*sources: Source) -> list[bool]:
    return [source.paused for source in sources]


def test_sources_go_on_when_nothing_holds_them_any_more() -> None:
    pauses, sources = Pauses(), [Source(), Source()]
    for source in sources:
        pauses.add(source)
    pauses.hold("user")
    pauses.hold("letters")
    pauses.release("user")
    pauses.release("user")
    assert paused(*sources) == [True, True]
    pauses.release("letters")
    assert paused(*sources) == [False, False]


def test_a_source_that_begins_in_a_pause_is_paused() -> None:
    pauses, late = Pauses(), Source()
    pauses.hold("user")
    pauses.add(late)
    assert late.paused


def test_a_source_that_goes_on_may_have_the_others_held_again() -> None:
    pauses = Pauses()
    first = Source(lambda: pauses.hold("letters"))
    others = [Source(), Source()]
    for source in (first, *others):
        pauses.add(source)
    pauses.hold("user")
    pauses.release("user")
    assert paused(first, *others) == [True, True, True]


def test_a_source_that_is_over_is_left_alone() -> None:
    pauses, over, other = Pauses(), Source(), Source()
    pauses.add(over)
    pauses.add(other)
    pauses.remove([over])
    pauses.hold("user")
    assert paused(over, other) == [False, True]
