"""The two streams of a join as one, in which each event says from which side it comes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.streams.base.keys import By, Key
from penstock.streams.failures.error_policy import ErrorPolicy
from penstock.streams.joins.rows import Sided
from penstock.streams.keyed.key_faults import KeyFaults
from penstock.streams.protocol.event import Event
from penstock.streams.protocol.stage import RunningStage
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.rx.combining.merging import Merging
from penstock.streams.rx.combining.several import Waiting
from penstock.streams.stages.stream import Stream

__all__ = ["MergedSides", "SidedFaults", "SidedKey", "SidedPolicy"]


class MergedSides(Merging):
    """Reads two streams, and sends what came to a stage of the same description, with its side."""

    def __init__(
        self,
        stage: RunningStage,
        run: Run,
        info: StageInfo,
        streams: Sequence[Stream[Any]],
        prefetch: int,
    ) -> None:
        super().__init__(stage, run, info, streams, prefetch)
        self._stage = stage

    def arrived(self, source: Waiting, events: list[Event[Any]]) -> None:
        side = self.inputs.index(source)
        for event in events:
            event.value = Sided(side, event.value)
        super().arrived(source, events)

    def statistics(self) -> dict[str, Any]:
        numbers = self._stage.statistics()
        return {**numbers, "waiting": numbers["waiting"] + super().statistics()["waiting"]}


class SidedKey:
    """A `Key` of the rows themselves."""

    def __init__(self, by: By[Any]) -> None:
        self._key = Key(by)

    def get(self, value: Sided) -> Any:
        return self._key.get(value.value)

    def adapts(self, value: Sided) -> bool:
        return self._key.adapts(value.value)


class SidedFaults(KeyFaults):
    """What is reported and routed of an event is its row."""

    def survives_call(self, event: Event[Any], error: BaseException) -> bool:
        _take_side_away(event)
        return super().survives_call(event, error)

    def survives(self, event: Event[Any], error: BaseException, attempts: int = 1) -> bool:
        _take_side_away(event)
        return super().survives(event, error, attempts)


class SidedPolicy(ErrorPolicy):
    """What is reported and routed of an event is its row."""

    def survives(self, event: Event[Any], error: BaseException, attempts: int = 1) -> bool:
        _take_side_away(event)
        return super().survives(event, error, attempts)


def _take_side_away(event: Event[Any]) -> None:
    if event.value.__class__ is Sided:
        event.value = event.value.value
