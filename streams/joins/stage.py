"""The stage that keeps rows of two streams by their keys, until a watermark lets them go."""

from __future__ import annotations

from typing import Any

from orjson import loads

from penstock.streams.base.errors import WrongType, describe
from penstock.streams.base.keys import By
from penstock.streams.failures.policy import OnError
from penstock.streams.joins.rows import PairedRows, Sided
from penstock.streams.joins.sides import SidedFaults, SidedKey, SidedPolicy
from penstock.streams.joins.versions import VersionedRows
from penstock.streams.protocol.event import Event
from penstock.streams.protocol.stage import Subscriber
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.state.changes import Cell
from penstock.streams.state.codec import encoded
from penstock.streams.state.commits import Commits
from penstock.streams.windows.stage import WindowStage
from penstock.streams.windows.states import Asked, Closed, WindowStates

__all__ = ["LateRow", "SidedStage"]

_Rows = PairedRows | VersionedRows


class LateRow(Exception):
    """A row that came too late to find others."""


class SidedStage(WindowStage):
    """Keeps rows of two streams."""

    def __init__(
        self,
        downstream: Subscriber[Any],
        run: Run,
        info: StageInfo,
        bys: tuple[By[Any], By[Any]],
        rows: _Rows,
        clock: Any,
        states: WindowStates,
        commits: Commits,
        late: OnError,
        on_error: OnError,
        is_stored: bool,
    ) -> None:
        windows: Any = rows
        key: Any = SidedKey(*bys)
        options = None, late, on_error, is_stored
        super().__init__(downstream, run, info, bys[0], windows, clock, states, commits, *options)
        self._key = key
        self._faults = SidedFaults(on_error, run, info, *bys)
        self._late = SidedPolicy(late, run, info)
        self._value_of = self._row_of

    def _row_of(self, event: Event[Any], _: float, key: Any) -> Sided:
        side, value, _ = event.value
        if self._is_stored:
            self._check_plain(value)
        return Sided(side, value, key is not None)

    def _check_plain(self, value: Any) -> None:
        """Raise WrongType for a row that would come back from a store as another one."""
        try:
            is_same = loads(encoded(value)) == value
        except (TypeError, ValueError):
            is_same = False
        if not is_same:
            raise WrongType(
                f"{self.info.name}(store=) keeps rows as JSON, and {describe(value, 80)} would "
                f"come back as another value: make a dict, a list, a text or a number of it in "
                f"front of {self.info}, as by ops.map(dataclasses.asdict)"
            )

    def _send(self, cell: Cell, found: list[Any], done: Closed | Asked) -> None:
        if found or self._is_stored:
            super()._send(cell, found, done)
        else:
            # Most rows leave without a result.
            self._states.follow(cell)
            self._forget_empty(cell)
            self._timers.note(cell)
