"""The base class of stages that read several streams at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from penstock.streams.base.errors import BuildError
from penstock.streams.base.validation import require_count
from penstock.streams.boundary.inner_stream import Input
from penstock.streams.protocol.acknowledgement import Family
from penstock.streams.protocol.event import Event, give_back_all
from penstock.streams.protocol.stage import CLOSED, Subscriber
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.rx.bounds import PREFETCH
from penstock.streams.rx.combining.inputs import part_for, reading_all
from penstock.streams.stages.demand_stage import BaseDemandStage
from penstock.streams.stages.stream import Stream

__all__ = ["PREFETCH", "Latest", "Several", "Waiting", "several"]

S = TypeVar("S", bound=Stream[Any])

_Make = Callable[..., "Several"]


def several(
    source: S,
    others: Sequence[Stream[Any]],
    make: _Make,
    info: StageInfo,
    *,
    holds: bool = False,
    prefetch: int = PREFETCH,
) -> S:
    """`source`, read together with the others by the `Several` that `make` returns, which is called
    with the stage below, the run, the stage's description, all `streams` and `prefetch`.

    `holds`: it keeps events until others come, so none of them may hold a turn. `info.bound` is
    what it keeps besides the events that wait.
    """
    require_count(info.name, prefetch=prefetch)
    streams: list[Stream[Any]] = [source, *others]
    if holds and any(stream.turns for stream in streams):
        raise BuildError(
            f"{info.name} keeps events, which after spread() would keep their groups' turns: put "
            "it after the stage that ends the turns (adaptive_flat_map or batch), or before "
            "group_by"
        )
    info = info._replace(bound=(info.bound or 0) + len(streams) * prefetch)
    return reading_all(source, others, partial(make, streams=streams, prefetch=prefetch), info)


class Waiting(Input):
    """An input, with the events that have come from it and wait in the stage."""

    def __init__(self, stream: Stream[Any], part: Run, reader: Several, prefetch: int) -> None:
        super().__init__(stream, part, reader)
        self.prefetch = prefetch
        self.events: deque[Event[Any]] = deque()

    @property
    def has_ended(self) -> bool:
        """Whether nothing waits, and nothing more comes."""
        return self.is_over and not self.events

    def fill(self, wanted: int) -> bool:
        """Request so many that `wanted` wait or are on their way; by halves, not one by one.

        Returns whether it has requested any.
        """
        wanted = min(wanted, self.prefetch)
        ahead = self.requested + len(self.events)
        if self.is_over or ahead * 2 > wanted or not wanted:
            return False
        self.request(wanted - ahead)
        return True


class Several(BaseDemandStage):
    """Reads several streams at once, each as far ahead as `prefetch` and its own demand allow.

    A subclass implements `combine`, one step with what waits in `inputs`. The first error of a
    stream ends it as soon as the events that came before it and are requested have been sent; then,
    at the end, and at a cancel, all streams are cancelled, and what waits is returned. The streams
    are read in parts of the running: their sources count in it, and are paused and drained with it.
    """

    def __init__(
        self,
        downstream: Subscriber[Any],
        run: Run,
        info: StageInfo,
        streams: Sequence[Stream[Any]],
        prefetch: int,
    ) -> None:
        super().__init__(downstream, run, info)
        self.inputs = [
            Waiting(stream, part_for(run, info, at, stream), self, prefetch)
            for at, stream in enumerate(streams)
        ]
        self._failure: BaseException | None = None

    def combine(self) -> bool:
        """Do one thing with what waits: send, or finish. Returns whether there may be more."""
        raise NotImplementedError

    def finish(self) -> None:
        """Complete, unless a stream has failed: then the error follows what was sent."""
        if self._failure is None:
            self.complete()

    def arrived(self, source: Waiting, events: list[Event[Any]]) -> None:
        """Note events that have come; a stage that takes them in the order of their coming, or at
        once, overrides it."""
        source.events += events

    def begin(self) -> None:
        """Attach the streams, and then call `on_subscribe` of the stage below."""
        self.within(self._begin)

    def _begin(self) -> None:
        try:
            for each in self.inputs:
                each.attach()
        except BaseException:
            self._cancel_inputs()
            raise
        self.downstream.on_subscribe(self)

    # From the streams.

    def came(self, source: Input, events: list[Event[Any]], /) -> None:
        assert isinstance(source, Waiting)
        if self.state >= CLOSED:
            give_back_all(events)
        else:
            self.arrived(source, events)
            self._drain()

    def over(self, source: Input, error: BaseException | None, /) -> None:
        if error is not None and self._failure is None:
            self._failure = error
        elif error is not None:
            self.run.late_error(error)
        self._drain()

    # The drain loop.

    def step(self) -> bool:
        if self.combine():
            return True
        if self.state >= CLOSED:
            return False
        if self._failure is not None:
            self.fail(self._failure)
            return False
        return self.fill()

    def fill(self) -> bool:
        """Request from every stream before anything is done with what comes from the first."""
        filled = [each.fill(self.demand) for each in self.inputs]
        return any(filled)

    def release(self) -> None:
        self._cancel_inputs()
        for each in self.inputs:
            waiting = list(each.events)
            each.events.clear()
            give_back_all(waiting)

    def _cancel_inputs(self) -> None:
        for each in self.inputs:
            each.cancel()

    def statistics(self) -> dict[str, Any]:
        """The events that wait, for demand or for those of other streams."""
        return {"waiting": sum(len(each.events) for each in self.inputs)}


class Latest:
    """The newest event of a stream, from which outputs are made until another replaces it.

    It has ended when another has replaced it, or all has ended, and all outputs made from it have
    ended; if there are none it is dropped for `cause`.
    """

    __slots__ = ("_cause", "_family")

    def __init__(self, cause: str) -> None:
        self._cause = cause
        self._family: Family | None = None

    @property
    def is_there(self) -> bool:
        """Whether there is one."""
        return self._family is not None

    def replace(self, event: Event[Any]) -> None:
        """`event` is the newest from now on."""
        self.close()
        self._family = Family(event, self._cause)

    def child(self) -> Event[Any]:
        """A child of the event, for one output."""
        assert self._family is not None
        return self._family.child(self._family.parent.value)

    def close(self) -> None:
        """No more outputs are made from the event."""
        family, self._family = self._family, None
        if family is not None:
            family.close()

    def give_back(self) -> None:
        """Return the event: outputs that would have been made from it are not."""
        family, self._family = self._family, None
        if family is not None:
            family.parent.give_back()
            family.close()
