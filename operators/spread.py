"""Rotate fairly over groups: after one event of a group, every other group gets one.

Items:   the events of all groups, round-robin over the groups that have work; an event of a
         group leaves only when the group's previous event has ended its turn. Over a plain
         stream of iterables: their items, one iterable after the other in rotation.
Time:    at once; no timers. Over plain iterables a free feeder gets its group before the others go
         on, however long the source and the steps above compute, including a plain handler of
         `adaptive_flat_map`: the order depends on the groups alone. If they wait for something,
         such as an async handler for the network or `batch` for more events, the others are not
         held up, and a group joins the rotation when it comes.
Memory:  one entry for each group with work; over plain iterables, `feeders` open iterators
         (1,024 where no number is given).
Demand:  takes an event out of a group only for a unit of demand. A plain iterable is requested when
         a feeder is free and there is demand, an item of it when it is next in the rotation.
Ends:    when the source has completed and every group is empty. Cancel closes open iterators and
         returns what waits.
Errors:  an iterable that raises is this stage's error: its event fails, the pipeline stops. So is a
         value that is a single event instead of a list of them: a mapping, a text, bytes, a number.
         For a source that is known to give mappings, such as read_jsonl, building the pipeline
         fails.

    groups          A = a1 a2 a3   B = b1   C = c1 c2 c3
    spread(1)       a1 a2 a3 b1 c1 c2 c3 |
    spread(2)       a1 b1 a2 c1 a3 c2 c3 |
    spread(3)       a1 b1 c1 a2 c2 a3 c3 |
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar, cast, overload

from penstock.streams.errors import BuildError, describe
from penstock.streams.failures.policy import blame
from penstock.streams.flowable import Flowable
from penstock.streams.keyed.grouped import Group, Grouped
from penstock.streams.protocol.acknowledgement import Family
from penstock.streams.protocol.event import Event
from penstock.streams.protocol.stage import Stage, StageInfo, Subscriber
from penstock.streams.protocol.time_slice import Sliced, TimeSlice, slices_made
from penstock.streams.runtime.context import Run
from penstock.streams.validation import is_count

__all__ = ["spread"]

T = TypeVar("T")

_MOST_OPEN = 1024

# Single events, although they can be iterated over: by keys, by characters, by bytes.
_SINGLE: tuple[type, ...] = (Mapping, str, bytes, bytearray)


class _Spread:
    """The operator; a class, so that the element type is inferred for groups and iterables."""

    def __init__(self, feeders: int | None) -> None:
        self._feeders = feeders

    @overload
    def __call__(self, source: Flowable[Group[Any, T]], /) -> Flowable[T]: ...

    @overload
    def __call__(self, source: Flowable[Iterable[T]], /) -> Flowable[T]: ...

    def __call__(self, source: Flowable[Any], /) -> Flowable[Any]:
        feeders = self._feeders
        detail = "" if feeders is None else f"{feeders} feeders"

        is_grouped = isinstance(cast(object, source), Grouped)
        groups = cast("Grouped[Any, Any]", source) if is_grouped else None
        if source.mappings:
            raise BuildError(_not_iterables(f"the single events of {source.chain()[0].info}"))
        if isinstance(source, _Spreading) and isinstance(source.above, Grouped):
            raise BuildError(
                "spread() straight after spread(): the first has taken the groups apart already; "
                "leave one of the two out"
            )

        def attach(downstream: Subscriber[Any], run: Run) -> None:
            if groups is not None:
                groups.rotate(downstream, run, feeders, flowable.info)
            else:
                spreader = _Spreader(downstream, run, feeders or _MOST_OPEN, flowable.info)
                run.add_stage(flowable.info, spreader.statistics)
                with slices_made(run) as spreader.above:
                    source.attach(spreader, run)

        info = StageInfo("spread", detail, 0 if groups is not None else feeders or _MOST_OPEN)
        turns = groups is not None or source.turns
        flowable = _Spreading(attach, info, groups or source, turns=turns, spreads=True)
        return flowable


class _Spreading(Flowable[Any]):
    """The operator that `spread` returns."""


def spread(feeders: int | None = None) -> _Spread:
    """Rotate over the groups of `group_by`, or over a plain stream of iterables.

    `feeders` groups are worked on at a time and the next is opened when one runs empty, which is
    the job spreader; None rotates over all. A live group is empty when none of its events waits and
    its turn is not held. Raises BuildError when `feeders` is below 1, and over a source of single
    events.
    """
    if feeders is not None and not is_count(feeders):
        raise BuildError(f"spread(feeders={feeders!r}): at least 1 feeder is needed")
    return _Spread(feeders)


class _Spreader(Stage[Any, Any]):
    """Takes items out of plain iterables, `feeders` of them open at a time.

    `above` are the slices of time of the stages above. A stage above that is asked for a group and
    only yields to the loop delivers it in that loop iteration, unless it yields again.
    """

    above: list[Sliced]

    def __init__(
        self, downstream: Subscriber[Any], run: Run, feeders: int, info: StageInfo
    ) -> None:
        super().__init__(downstream)
        self._run = run
        self._now = run.now
        self._slice = TimeSlice(run, self._pump)
        self._feeders = feeders
        self._info = info
        self._rotation: deque[tuple[Event[Any], Family, Iterator[Any]]] = deque()
        self._demand = 0
        self._asked = False
        # Whether the last group has not been opened yet, and whether its sender waits for that
        # before it sends another.
        self._is_new = self._is_called = False
        self._waits_for_turn = False
        self._completed = False
        self._pumping = False
        self._done = False

    def request(self, n: int, /) -> None:
        self._demand += n
        if not self._pumping:
            self._pump()

    def cancel(self) -> None:
        if not self._completed:
            self.upstream.cancel()
        self._stop(self._run.failed)

    def on_events(self, events: list[Event[Any]], /) -> None:
        self._asked = False
        (event,) = events
        if self._done or self._completed:
            event.give_back()
            return
        try:
            iterator = _items(event.value)
        except Exception as error:
            self._fail(event, error)
            return
        # The newcomer's first item is next, before the rotation goes on.
        self._rotation.appendleft((event, Family(event, "empty"), iterator))
        self._is_new = True
        if not self._pumping:
            self._is_called = True
            try:
                self._pump()
            finally:
                self._is_called = False

    def on_completed(self) -> None:
        self._completed = True
        self._asked = False
        if not self._pumping:
            self._pump()

    def on_error(self, error: BaseException, /) -> None:
        self._completed = True
        if not self._done:
            self._stop(self._run.late_error)
            self.downstream.on_error(error)

    def _pump(self) -> None:
        self._pumping = True
        rotation = self._rotation
        try:
            while not self._done:
                if self._demand and self._may_open():
                    self._asked = True
                    self.upstream.request(1)
                    if self._done:
                        return
                if self._is_coming():
                    return
                if not rotation:
                    if self._completed:
                        self._done = True
                        self.downstream.on_completed()
                    return
                # An iterable may be endless.
                if not self._demand or self._slice.is_over(self._now()):
                    return
                self._step()
        finally:
            self._pumping = False

    def _is_coming(self) -> bool:
        """Whether the requested group comes without waiting for anything but the loop."""
        if not self._asked or not self._run.has_loop:
            return False
        if not (self._is_called or any(each.is_left for each in self.above)):
            return False
        if not self._waits_for_turn:
            self._waits_for_turn = True
            # The loop calls them in the order in which they yielded, so all before this.
            self._run.call_soon(self._info, self._had_turn)
        return True

    def _had_turn(self) -> None:
        self._waits_for_turn = False
        if not self._pumping:
            self._pump()

    def _may_open(self) -> bool:
        asks = not (self._asked or self._is_new or self._completed)
        return asks and len(self._rotation) < self._feeders

    def _step(self) -> None:
        event, family, iterator = self._rotation.popleft()
        self._is_new = False
        try:
            item = next(iterator)
        except StopIteration:
            family.close()
            return
        except Exception as error:
            self._fail(event, error)
            family.close()
            return
        if self._done:
            # It has cancelled its own stream.
            self._rotation.append((event, family, iterator))
            self._stop(self._run.failed)
            return
        self._rotation.append((event, family, iterator))
        self._demand -= 1
        self.downstream.on_events([family.child(item)])

    def _fail(self, event: Event[Any], error: Exception) -> None:
        blame(error, self._info, event)
        event.fail(error)
        if not self._completed:
            self.upstream.cancel()
        self._stop(self._run.late_error)
        self.downstream.on_error(error)

    def _stop(self, tell: Callable[[Exception], None]) -> None:
        self._done = True
        self._demand = 0
        errors: list[Exception] = []
        while self._rotation:
            event, family, iterator = self._rotation.popleft()
            close: Callable[[], None] | None = getattr(iterator, "close", None)
            if close is not None:
                try:
                    close()
                except Exception as error:
                    errors.append(error)
            event.give_back()
            family.close()
        for each in errors:
            tell(each)

    def statistics(self) -> dict[str, Any]:
        """The `open` iterables, each an event being taken apart."""
        return {"open": len(self._rotation), "waiting": len(self._rotation)}


def _items(value: Any) -> Iterator[Any]:
    """The items of an iterable that is not itself a single event."""
    if isinstance(value, _SINGLE) or not hasattr(value, "__iter__"):
        raise TypeError(_not_iterables(describe(value, 80)))
    return iter(value)


def _not_iterables(what: str) -> str:
    return (
        f"spread() takes groups or iterables of events, not {what}: put group_by(...) before it, "
        "or a map(...) to the list of its events"
    )
