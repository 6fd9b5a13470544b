"""The stage that makes one stream of several."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from penstock.streams.protocol.event import Event
from penstock.streams.protocol.stage import Subscriber, send_list
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.rx.combining.several import Several, Waiting
from penstock.streams.stages.stream import Stream

__all__ = ["Merging"]


class Merging(Several):
    """`_ready` are the streams with events that wait, the next in rotation first."""

    def __init__(
        self,
        downstream: Subscriber[Any],
        run: Run,
        info: StageInfo,
        streams: Sequence[Stream[Any]],
        prefetch: int,
    ) -> None:
        super().__init__(downstream, run, info, streams, prefetch)
        self._ready: deque[Waiting] = deque()

    def arrived(self, source: Waiting, events: list[Event[Any]]) -> None:
        if not source.events:
            self._ready.append(source)
        source.events += events

    def combine(self) -> bool:
        ready = self._ready
        if self.demand and ready:
            sent: list[Event[Any]] = []
            while ready and len(sent) < self.demand:
                source = ready.popleft()
                sent.append(source.events.popleft())
                if source.events:
                    ready.append(source)
            self.demand -= len(sent)
            send_list(self.downstream, sent)
            return True
        if all(each.has_ended for each in self.inputs):
            self.finish()
        return False

    def release(self) -> None:
        self._ready.clear()
        super().release()
