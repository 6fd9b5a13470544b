"""The states of windows with some of their changes: what is stored, and what is undone."""

from __future__ import annotations

from typing import Any

from orjson import loads

from penstock import agg, tumbling
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.state.backend import Columns, KeptStage
from penstock.streams.state.changes import Cell, Change, Root, committed, undo
from penstock.streams.state.memory import Memory
from penstock.streams.windows.states import Added, WindowStates
from penstock.streams.windows.windows import windows_of

NEVER = float("-inf")


class Story:
    """The windows of one key, in memory."""

    def __init__(self) -> None:
        self.windows = windows_of(tumbling(10), agg.count())
        kept = KeptStage("windows", "key", 1)
        info = StageInfo("window")
        self.states = WindowStates(info, Memory(), kept, self.windows, 100, lambda: 0.0)
        self.states.add({b'"a"': "a"}, [])
        self.cell: Cell = self.states.cells["a"]

    def adds(self, time: float) -> Change:
        assert self.windows.add(self.cell.state, time, {}, NEVER)
        return self.states.note(self.cell, Root(), Added(time, {}, NEVER))

    def counts(self, state: Any) -> dict[float, int]:
        return {one.start: one.value for one in self.windows.close("a", state, float("inf"))}

    def written(self, change: Change) -> dict[float, int]:
        rows: list[Columns] = []
        self.states.write([change], rows, [])
        return self.counts(loads(rows[0][1]))


def test_a_prefix_of_the_changes_is_stored_as_it_was() -> None:
    story = Story()
    changes = [story.adds(time) for time in (1.0, 2.0, 15.0)]
    assert [story.written(change) for change in changes] == [{0: 1}, {0: 2}, {0: 2, 10: 1}]


def test_a_prefix_is_made_of_what_was_committed_before() -> None:
    story = Story()
    first, second, _ = [story.adds(time) for time in (1.0, 2.0, 3.0)]
    story.written(first)
    committed([first.root])
    story.states.committed([first])
    assert story.written(second) == {0: 2}


def test_changes_that_are_undone_are_in_the_windows_no_more() -> None:
    story = Story()
    story.adds(1.0)
    lost = story.adds(2.0)
    due = story.cell.timers
    later = story.adds(15.0)
    for change in (lost, later):
        change.root.is_lost = True
    undo([lost.root, later.root])
    assert story.cell.timers == due
    assert story.written(story.adds(3.0)) == {0: 2}
