"""The two streams of a join as one, in which each event says from which side it comes."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from penstock.streams.base.keys import By, Key
from penstock.streams.failures.error_policy import ErrorPolicy
from penstock.streams.failures.policy import OnError
from penstock.streams.joins.rows import LEFT, RIGHT, Sided
from penstock.streams.keyed.key_faults import KeyFaults
from penstock.streams.protocol.event import Event
from penstock.streams.protocol.stage import RunningStage, send_list
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.rx.combining.merging import Merging
from penstock.streams.rx.combining.several import Waiting
from penstock.streams.stages.stream import Stream

__all__ = ["MergedSides", "SidedFaults", "SidedKey", "SidedPolicy", "TableFirst"]


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


class TableFirst(MergedSides):
    """What has come of the right stream is sent before what has come of the left one."""

    def arrived(self, source: Waiting, events: list[Event[Any]]) -> None:
        super().arrived(source, events)
        self._ready = deque(each for each in self._ready if each is self.inputs[LEFT])

    def combine(self) -> bool:
        table = self.inputs[RIGHT].events
        if not (self.demand and table):
            return super().combine()
        sent = [table.popleft() for _ in range(min(self.demand, len(table)))]
        self.demand -= len(sent)
        send_list(self.downstream, sent)
        return True


class SidedKey:
    """The keys of the rows themselves, which may be named differently on the two sides."""

    def __init__(self, *bys: By[Any]) -> None:
        self._keys = [Key(by) for by in bys]

    def get(self, value: Sided) -> Any:
        return self._keys[value[0]].get(value[1])

    def adapts(self, value: Sided) -> bool:
        return self._keys[value[0]].adapts(value[1])


class SidedFaults(KeyFaults):
    """What is reported and routed of an event is its row."""

    def __init__(self, policy: OnError, run: Run, info: StageInfo, *bys: By[Any]) -> None:
        super().__init__(policy, run, info, bys[LEFT])
        self._by: By[Any] | None = bys[LEFT]
        self._bys = bys

    def survives_call(self, event: Event[Any], error: BaseException) -> bool:
        self._take_side_away(event)
        return super().survives_call(event, error)

    def survives(self, event: Event[Any], error: BaseException, attempts: int = 1) -> bool:
        self._take_side_away(event)
        return super().survives(event, error, attempts)

    def _take_side_away(self, event: Event[Any]) -> None:
        if event.value.__class__ is Sided:
            self._by = self._bys[event.value.side]
        _take_side_away(event)


class SidedPolicy(ErrorPolicy):
    """What is reported and routed of an event is its row."""

    def survives(self, event: Event[Any], error: BaseException, attempts: int = 1) -> bool:
        _take_side_away(event)
        return super().survives(event, error, attempts)


def _take_side_away(event: Event[Any]) -> None:
    if event.value.__class__ is Sided:
        event.value = event.value.value
