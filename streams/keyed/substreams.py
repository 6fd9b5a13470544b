"""Operators inside groups: a stream for each key, with a state that lives as long as its group."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from heapq import nlargest
from math import inf
from typing import Any

from penstock.streams.errors import CALL_ERRORS, BuildError, HoldExceeded, own_error
from penstock.streams.flowable import Flowable
from penstock.streams.keyed.expiry import Idle
from penstock.streams.keyed.grouped import Group
from penstock.streams.keyed.key import Key, KeyFaults
from penstock.streams.keyed.stage import HOTTEST, KeyedStage
from penstock.streams.keyed.substream import Gathered, Substream
from penstock.streams.keyed.taken import taken
from penstock.streams.protocol.blame import blame
from penstock.streams.protocol.event import Event, give_back_all
from penstock.streams.protocol.stage import CLOSED, StageInfo, State, Subscriber
from penstock.streams.protocol.time_slice import LARGEST, TimeSlice
from penstock.streams.runtime.context import Run
from penstock.streams.rx.lift import HOLD

__all__ = ["Substreams"]


# What to do about groups that are closed early.
_ADVICE = {
    "buffer": "Raise buffer=, or give a shorter idle=, so that groups end by themselves.",
    "max_groups": "Raise max_groups=, or give a shorter idle=.",
}

_OpenGroup = Substream | Gathered


class Substreams(KeyedStage):
    """The stage of a `group_by` with `each=`, and of its `spread`.

    An event goes into the operators of its group, the group's substream; their outputs wait in the
    queue of the group's key. Invariants:

    - At most `buffer` events have a place (`_held`): those that wait for operators, are inside
      them, or that an output in a queue was made of. A dead letter keeps the place of its event
      until it has been written.
    - An output in a queue takes one more place. `_held`, the outputs in queues, `_freed` and the
      events that are requested add up to `buffer`; `_freed` may be negative.
    - A group rests when no event waits for its operators, no output of it waits, and no turn of it
      is held. It is closed, which completes its operators, when it has rested for `idle` seconds;
      when it is the one that has rested for longest and there are more than `max_groups`; when it
      is the one that has rested for longest of those that hold events, the buffer is full and there
      is demand; and when the stream above has completed.
    - A group is in `_groups` until its operators have completed and its queue has ended. An event
      that comes after it was closed begins it anew, when its operators have completed.
    """

    def __init__(
        self,
        downstream: Subscriber[Any],
        run: Run,
        info: StageInfo,
        key: Key,
        buffer: int,
        faults: KeyFaults,
        feeders: int | None,
        each: Callable[[Any], Flowable[Any]],
        idle: float,
        max_groups: int | None,
    ) -> None:
        super().__init__(downstream, run, info, key, buffer, faults, feeders, leaves=True)
        self._put = self._put_into_groups
        self._each = each
        self._seconds = idle
        self._max_groups = inf if max_groups is None else max_groups
        self._groups: dict[Any, _OpenGroup] = {}
        # What every group's operators make of all its events, once that is known, and what the
        # operators of the last group make of them.
        self._whole: Callable[[list[Event[Any]]], Any] | None = None
        self._last_whole: Callable[[list[Event[Any]]], Any] | None = None
        # Groups that are not closed, and all whose operators have not completed.
        self._open = self._alive = 0
        # Groups that have rested, in the order in which they last began to. `_holding` are those
        # that may hold events, in the same order; None until the buffer is full for the first time.
        self._idle = Idle[_OpenGroup](idle, run, self._close_if_at_rest)
        self._holding: OrderedDict[_OpenGroup, None] | None = None
        # Groups that may rest, in the order of their use.
        self._used: list[_OpenGroup] = []
        # The one that was closed to make room, until its operators have completed.
        self._making_room: _OpenGroup | None = None
        self._held = self._most_held = self._most_groups = 0
        self.letters = 0
        self._closed_early: dict[str, int] = {}
        # After the end of the stream above: groups that are still to be closed.
        self._left: deque[_OpenGroup] = deque()
        self._slice = TimeSlice(run, self._drain)

    # Events on their way in.

    def _put_into_groups(self, events: list[Event[Any]]) -> tuple[int, Exception] | None:
        """Give each event to the operators of its group, up to one whose key cannot be read."""
        # First, because an event may be that of a group that has expired.
        self._idle.end_expired()
        self._held += len(events)
        find, key_of, use = self._groups.get, self._key.get, self._used.append
        refused: tuple[int, Exception] | None = None
        for place, event in enumerate(events):
            if self.state >= CLOSED:
                give_back_all(events[place:])
                break
            try:
                key = key_of(event.value)
                group = find(key)
            except CALL_ERRORS as raised:
                error = own_error(raised)
                refused = place, error
                break
            if group is None or group.ended:
                # One that has ended is there until its outputs have left.
                group = self._begin(key, event, is_outside=group is not None)
                if group is None:
                    self._held -= 1
                    continue
            group.append(event)
            use(group)
        else:
            place = len(events)
        self._held -= len(events) - place
        self._rest_used()
        self._most_held = max(self._most_held, self._held)
        self._most_groups = max(self._most_groups, len(self._groups))
        return refused

    def _begin(self, key: Any, event: Event[Any], *, is_outside: bool) -> _OpenGroup | None:
        """The substream of a group, which begins with `event`; None if that has failed."""
        self._open += 1
        self._alive += 1
        whole = self._whole
        try:
            group = self._opened(key) if whole is None else Gathered(key, self, whole)
        except CALL_ERRORS as raised:
            error = own_error(raised)
            blame(error, self.info, event)
            event.fail(error)
            self.fail(error)
            return None
        if self.state >= CLOSED:
            # The function has cancelled the pipeline, before the group had its operators.
            group.give_back()
            event.give_back()
            return None
        self._groups[key] = group
        group.is_outside |= is_outside
        if self._open > self._max_groups:
            self._rest_used()
        return group

    def _opened(self, key: Any) -> _OpenGroup:
        substream = self._groups[key] = Substream(key, self)
        stream: Group[Any, Any] = Group(key, substream.attach, self.info)
        flowable = self._each(stream)
        if not isinstance(flowable, Flowable):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise BuildError(
                f"group_by(each=...) must return a Flowable such as group.pipe(...), "
                f"not {type(flowable).__name__}"
            )
        for stage in flowable.chain():
            if stage.info.works:
                raise BuildError(
                    f"{stage.info.name} inside group_by(each=...) would have a limit of its own in "
                    "every group: put it after spread(), where all groups share one"
                )
        whole = flowable.whole
        if whole is None or flowable.above is not stream:
            flowable.attach(substream, self.run)
            return substream
        if not stream.is_key_read and whole is self._last_whole:
            # The operators do not depend on the group, so they are the same in every one.
            self._whole = whole
        self._last_whole = whole
        return Gathered(key, self, whole)

    # What happens in substreams, and below.

    def emitted(self, substream: _OpenGroup, event: Event[Any], /) -> None:
        if self.state >= CLOSED:
            event.give_back()
            return
        substream.is_outside = True
        self._freed -= 1
        self.queues.put_one(substream.key, event)
        self._drain()

    def freed(self, n: int, /) -> None:
        self._held -= n
        self._freed += n
        self._drain()

    def fed(self, substream: Substream, /) -> None:
        self._used.append(substream)
        self._drain()

    def ended(self, substream: _OpenGroup, /) -> None:
        self._alive -= 1
        if self._making_room is substream:
            self._making_room = None
        if substream.waiting:
            self.within(self._begin_again, substream)
        elif not substream.is_outside:
            del self._groups[substream.key]
        self._drain()

    def _begin_again(self, ended: _OpenGroup) -> None:
        """Begin a group anew with the events that came before its operators had completed."""
        late = ended.waiting
        group = self._begin(ended.key, late[0], is_outside=ended.is_outside)
        if group is None:
            ended.give_back()
            return
        group.extend(late)
        self._used.append(group)
        if self.state:
            self._close_group(group)

    def _go_on(self) -> None:
        # Also without demand, because groups may have ended with their turns.
        self._drain()

    def _proceed(self) -> None:
        """Pass outputs on, and do what follows from what has been noted."""
        super()._proceed()
        queues, groups = self.queues, self._groups
        ended, queues.ended = queues.ended, []
        for key in ended:
            group = groups.get(key)
            if group is not None and key not in queues.keys:
                group.is_outside = False
                if group.ended:
                    del groups[key]
                else:
                    self._used.append(group)
        if self._used:
            self._rest_used()
        emptied, queues.taken = queues.taken, []
        for key in emptied:
            group = groups.get(key)
            if group is not None:
                group.output_taken()
        if self._left:
            self._close_the_rest()
        self._find_room()

    # Room.

    def _find_room(self) -> None:
        """Request what is free, and close a group if the groups hold all that fits."""
        if self.state:
            return
        nothing_comes = self._held + self.queues.waiting + self._freed >= self._buffer
        if self._freed > 0:
            if nothing_comes or self._freed >= self._batch:
                self._ask()
        elif nothing_comes and self.demand and not (self.queues.has_next or self.letters):
            # When a letter has been written, there will be room.
            self._make_room()

    def _make_room(self) -> None:
        """Close the group that has rested for longest, of those that hold events.

        One at a time: what it holds may leave later, and then the next one need not be closed.
        """
        if self._holding is None:
            rest = [group for group in self._idle if len(group) and _is_at_rest(group)]
            self._holding = OrderedDict.fromkeys(rest)
        while self._holding and self._making_room is None:
            group, _ = self._holding.popitem(last=False)
            if len(group):
                self._making_room = group
                self._idle.remove(group)
                self._count("buffer")
                self._close_group(group)
                return
        if not (self.queues or any(map(_has_events, self._groups.values()))):
            self.fail(
                HoldExceeded(
                    f"{self._held:,} events are held inside the groups of {self.info}, by stages "
                    "that neither passed them on nor ended them when they were completed, as a "
                    "stage of your own has to. To hold more, raise buffer=."
                )
            )

    def _count(self, cause: str) -> None:
        """A group is closed early, for this cause."""
        if cause not in self._closed_early:
            self.run.errors.warn(
                f"{self.info} has closed a group before it was idle for {self._seconds:g} s, for "
                f"lack of room ({cause}): what comes out of it is made of a part of its events. "
                f"{_ADVICE[cause]}"
            )
        for counts in (self._closed_early, self.run.errors.closed_early):
            counts[cause] = counts.get(cause, 0) + 1

    # The end of groups.

    def _rest_used(self) -> None:
        """Note which of the groups that were used rest; close those above `max_groups`."""
        used = self._used.copy()
        self._used.clear()
        if self.state:
            return
        rest: list[_OpenGroup] = []
        for group in used:
            if len(group) > HOLD and isinstance(group, Gathered):
                self._broke_by_holding(len(group))
                return
            if not (group.is_outside or group.waiting or group.closed):
                rest.append(group)
        self._idle.used(rest)
        if self._holding is not None:
            for group in used:
                self._holding.pop(group, None)
            for group in rest:
                if len(group):
                    self._holding[group] = None
                    self._holding.move_to_end(group)
        while (many := self._open) > self._max_groups and self._idle.end_oldest():
            if self._open < many:
                self._count("max_groups")

    def _broke_by_holding(self, held: int) -> None:
        self.fail(
            HoldExceeded(
                f"{held:,} inputs in a group of {self.info} wait for an output that does not come "
                f"(hold {HOLD:,}). Use an operator that answers at once, such as scan, or "
                "lift(operator, hold=...) to let it hold more."
            )
        )

    def _close_if_at_rest(self, group: _OpenGroup) -> None:
        if _is_at_rest(group):
            if self._holding is not None:
                self._holding.pop(group, None)
            self.within(self._close_group, group)

    def _close_group(self, group: _OpenGroup) -> None:
        if not group.closed:
            self._open -= 1
            group.close()

    def _close_the_rest(self) -> None:
        """After the end of the stream above: close groups as fast as their outputs are taken."""
        if self.queues.waiting < LARGEST and not self._slice.is_over(self.run.now()):
            self._noted = True
            for group in taken(self._left, LARGEST):
                self._close_group(group)

    # The end.

    def on_completed(self) -> None:
        self._idle.clear()
        self._left.extend(self._groups.values())
        super().on_completed()

    def _end_if_idle(self) -> None:
        if not self._alive:
            super()._end_if_idle()

    def _close(self, state: State) -> None:
        self._idle.clear()
        self._left.clear()
        groups, self._groups = self._groups, {}
        super()._close(state)
        for group in groups.values():
            group.give_back()

    # Numbers.

    def _hottest_keys(self) -> list[dict[str, Any]]:
        now = self.run.now()
        return [
            {
                "key": group.key,
                "waiting": size,
                "age": None if event is None else now - event.created,
            }
            for group in nlargest(HOTTEST, self._groups.values(), _size)
            for size, event in ((_size(group), self._oldest(group)),)
            if size
        ]

    def _oldest(self, group: _OpenGroup) -> Event[Any] | None:
        """The first event of a group, if it can be known: what is in operators cannot."""
        output = self.queues.first(group.key)
        if output is not None:
            return output
        if isinstance(group, Gathered):
            return group[0] if group else None
        return group.waiting[0] if group.waiting and not group.held else None

    def group_statistics(self) -> dict[str, Any]:
        return super().group_statistics() | {
            "waiting": self._held,
            "peak": max(self._most_held, self._held),
            "groups": len(self._groups),
            "peak_groups": max(self._most_groups, len(self._groups)),
            "closed_early": dict(self._closed_early),
        }


def _size(group: _OpenGroup) -> int:
    """The events of a group: in its operators, before them, and those of its outputs."""
    # A group whose operators take all events has them itself, until it is closed.
    inside = len(group) if isinstance(group, Gathered) else 0
    return inside + group.held + len(group.waiting)


def _is_at_rest(group: _OpenGroup) -> bool:
    return not (group.is_outside or group.waiting or group.closed)


def _has_events(group: _OpenGroup) -> bool:
    return bool(len(group) or group.waiting)
