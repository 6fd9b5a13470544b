"""Operators inside groups: a stream for each key, with a state that lives as long as its group."""

from __future__ import annotations

import sys
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from typing import Any

from penstock.streams.base.errors import CALL_ERRORS, HoldExceeded, counted, own_error
from penstock.streams.base.keys import Key
from penstock.streams.base.take_front import taken
from penstock.streams.groups.closed_early import ClosedEarly
from penstock.streams.groups.expiry import Idle
from penstock.streams.groups.folded import Gathered, whole_of
from penstock.streams.groups.operators import Operators
from penstock.streams.groups.place import new_place
from penstock.streams.groups.sizes import Contents, Leaving, hottest, size
from penstock.streams.groups.substream import Substream
from penstock.streams.keyed.key_faults import KeyFaults
from penstock.streams.keyed.overflow import Overflow
from penstock.streams.keyed.stage import HOTTEST, KeyedStage
from penstock.streams.pipelines.flowable import Flowable
from penstock.streams.protocol.blame import fail_event
from penstock.streams.protocol.event import Event, give_back_all
from penstock.streams.protocol.stage import CLOSED, State, Subscriber
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.stages.time_slice import LARGEST, TimeSlice

__all__ = ["Substreams"]


class Substreams(KeyedStage):
    """The stage of a `group_by` with `each=`, and of its `spread`.

    An event goes into the operators of its group, the group's substream; their outputs wait in the
    queue of the group's key. Invariants:

    - At most `buffer` events have a place (`_held`): those that wait for operators, are inside
      them, or that an output in a queue was made of. A dead letter keeps the place of its event
      until it has been written.
    - What is over a key's share, and waits in a file, has no place. The places of a key with such
      events stay its own when they are free, and more are lent to it if its operators request
      events and have none.
    - An output in a queue takes one more place. `_held`, the outputs in queues, `_freed` and the
      events that are requested add up to `buffer`; `_freed` may be negative.
    - A group rests when no event waits for its operators, no output of it waits, and no turn of it
      is held: then its key has no queue. It is closed, which completes its operators, when it has
      rested for `idle` seconds; when it is the one that has rested for longest and there are more
      than `max_groups`; when it is one of those that have rested for longest of the ones that hold
      events, the buffer is full and there is demand; and when the stream above has completed.
    - A group is in `_groups` until its operators have completed, and then in `_leaving` until its
      queue has ended. An event that comes after it was closed begins it anew, when its operators
      have completed.
    """

    def __init__(
        self,
        downstream: Subscriber[Any],
        run: Run,
        info: StageInfo,
        key: Key,
        buffer: int,
        faults: KeyFaults,
        overflow: Overflow,
        feeders: int | None,
        each: Callable[[Any], Flowable[Any]],
        idle: float,
        max_groups: int | None,
    ) -> None:
        super().__init__(downstream, run, info, key, buffer, faults, overflow, feeders, leaves=True)
        self._put = self._put_into_groups
        self._operators = Operators(each, run, info)
        self._max_groups = sys.maxsize if max_groups is None else max_groups
        self._groups: dict[Any, Contents] = {}
        # What holds the places of the events that outputs in queues were made of.
        self._leaving: dict[Any, Leaving] = {}
        # The same of groups whose keys have begun new ones meanwhile.
        self._earlier: dict[Any, list[Leaving]] = {}
        # What operators have emitted, until it is looked at whose queue has events.
        self._outputs: list[tuple[Any, list[Event[Any]]]] = []
        # Those in `_groups` that are closed.
        self._closing = 0
        # The keys of groups in the order of their use. Of those that rest, `_holding` are those
        # that may hold events, in the same order; None until the buffer is full for the first time.
        self._idle = Idle[Any](idle, run, self._close_if_at_rest)
        self._holding: OrderedDict[Any, None] | None = None
        # The keys of groups that were used and are not noted in `_idle` yet.
        self._used: list[Any] = []
        # Those that were closed to make room, until their operators have completed.
        self._making_room: set[Substream] = set()
        # Those with a tail of which events may have moved up; those whose operators need them.
        self._refilled: list[Substream] = []
        self._starving: dict[Substream, None] = {}
        # How many events the groups hold that are closed together to make room: with fewer, the
        # lists from the source would be as short.
        self._room = max(1, buffer // 16)
        self._held = self._most_held = self._most_groups = 0
        self.letters = 0
        self._closed_early = ClosedEarly(run, info, idle)
        # After the end of the stream above: the keys of groups that are still to be closed.
        self._left: deque[Any] = deque()
        self._slice = TimeSlice(run, self._drain)

    # Events on their way in.

    def _put_into_groups(self, events: list[Event[Any]]) -> tuple[int, Exception] | None:
        """Give each event to the operators of its group, up to one whose key cannot be read."""
        # First, because an event may be that of a group that has expired.
        self._idle.end_expired()
        find, key_of, use = self._groups.get, self._key.get, self._used.append
        refused: tuple[int, Exception] | None = None
        for event in events:
            if self.state and self.state >= CLOSED:
                give_back_all(events[events.index(event) :])
                break
            try:
                key = key_of(event.value)
                group = find(key)
            except CALL_ERRORS as raised:
                refused = events.index(event), own_error(raised)
                break
            self._held += 1
            # The first checks are quicker, for most events.
            if type(group) is Substream or type(group) is Gathered:
                group.append(event)
            elif isinstance(group, Event):
                self._gather(key, [group, event])
            else:
                self._begin(key, [event])
            use(key)
        self._rest_used()
        self._most_groups = max(self._most_groups, len(self._groups) + len(self._leaving))
        return refused

    def _begin(self, key: Any, events: list[Event[Any]], ended: Substream | None = None) -> None:
        """Make a group for its first events, and the tail of the one that has ended before it.

        The events have ended if that has failed.
        """
        if self.state and self.state >= CLOSED:
            # The function of the key has cancelled the pipeline: there are no groups any more.
            self._return(events)
            return
        substream: Substream | None = None
        if not self._operators.is_known or ended is not None:
            substream = self._made(key, events, gathers=ended is None)
            if self.state >= CLOSED:
                return
        if substream is None:
            self._groups[key] = events[0]
            if len(events) > 1:
                self._gather(key, events)
        if self._leaving and (before := self._leaving.pop(key, None)) is not None:
            self._earlier[key] = [*filter(size, self._earlier.get(key, ())), before]
        if len(self._groups) - self._closing > self._max_groups:
            self._rest_used()
        if substream is None:
            return
        if self.state >= CLOSED:
            # An operator of a group that was closed has cancelled the pipeline.
            self._return(events)
        else:
            if ended is not None:
                self.overflow.hand_over(ended, substream)
            substream.extend(events)

    def _made(self, key: Any, events: list[Event[Any]], *, gathers: bool) -> Substream | None:
        """The operators of a group; None if it has none, or on an error."""
        self._groups[key] = substream = Substream(key, self)
        try:
            has_operators = self._operators.attach(substream, gathers=gathers)
        except CALL_ERRORS as raised:
            self.fail(fail_event(events[0], raised, self.info) if events else own_error(raised))
            self._return(events)
            return None
        if self.state >= CLOSED:
            # The function has cancelled the pipeline, before the group had its operators.
            if has_operators:
                substream.give_back()
            self._return(events)
        return substream if has_operators else None

    def _gather(self, key: Any, events: list[Event[Any]]) -> None:
        """Gather the first events of a group that has no operators, at least two."""
        values = self._operators.whole(key) == "values"
        gathered = Gathered(events[0], events[1], self, values=values)
        self._groups[key] = gathered
        for place in range(2, len(events)):
            if self.state >= CLOSED:
                # There were more than a group may hold.
                self._return(events[place:])
                break
            gathered.append(events[place])

    def _return(self, events: list[Event[Any]]) -> None:
        """Return events that are in no group."""
        self._held -= len(events)
        give_back_all(events)

    # What happens in substreams, and below.

    def emitted(self, key: Any, events: list[Event[Any]], /) -> None:
        if self.state and self.state >= CLOSED:
            give_back_all(events)
            return
        self._outputs.append((key, events))
        self._noted = True
        if not self._draining:
            self._drain()

    def _put_outputs(self) -> None:
        """Put what operators have emitted into the queues, that of many groups together."""
        if self._outputs:
            outputs, self._outputs = self._outputs, []
            self._freed -= self.queues.put_by_key(outputs)

    def freed(self) -> None:
        self._noted = True
        if not self._draining:
            self._drain()

    def fed(self, substream: Substream, /) -> None:
        self._used.append(substream.key)
        self._drain()

    def refilled(self, substream: Substream, /) -> None:
        self._refilled.append(substream)

    def starves(self, substream: Substream, /) -> None:
        self._starving[substream] = None

    def ended(self, substream: Substream, /) -> None:
        self._put_outputs()
        self._closing -= 1
        self._making_room.discard(substream)
        if substream.waits:
            self.within(self._begin_again, substream)
        else:
            key = substream.key
            del self._groups[key]
            self._idle.remove(key)
            if key in self.queues.keys:
                self._leaving[key] = substream
        self._drain()

    def _begin_again(self, ended: Substream) -> None:
        """Begin a group anew with the events that came before its operators had completed."""
        key = ended.key
        self._begin(key, ended.take_waiting(), ended if ended.over else None)
        self._used.append(key)
        if self.state:
            self._close_groups([key])

    def _go_on(self) -> None:
        # Also without demand, because groups may have ended with their turns.
        self._drain()

    def _proceed(self) -> None:
        """Pass outputs on, and do what follows from what has been noted."""
        if self.overflow.vacated or self.overflow.error is not None:
            self._take_vacated()
        self._most_held = max(self._most_held, self._held)
        self._put_outputs()
        super()._proceed()
        self._put_outputs()
        queues, groups, leaving = self.queues, self._groups, self._leaving
        ended, queues.ended = queues.ended, []
        for key in ended:
            if key in queues.keys:
                continue
            if self._earlier:
                self._earlier.pop(key, None)
            if (not leaving or leaving.pop(key, None) is None) and key in groups:
                self._used.append(key)
        if self._used:
            self._rest_used()
        emptied, queues.taken = queues.taken, []
        for key in emptied:
            group = groups.get(key)
            if type(group) is Substream:
                group.upstream.request(1)
        if self._refilled:
            refilled, self._refilled = self._refilled, []
            for substream in refilled:
                if self.state < CLOSED:
                    substream.feed_again()
        if self._left:
            self._close_the_rest()
        self._find_room()

    # Room.

    def _find_room(self) -> None:
        """Request what is free, and close groups if the groups hold all that fits."""
        if self.overflow.vacated:
            self._take_vacated()
        starves = bool(self._starving) and self._lend()
        if self.overflow.vacated:
            self._take_vacated()
        self._put_outputs()
        if self.state and not starves:
            return
        nothing_comes = (
            bool(self.state) or self._held + self.queues.waiting + self._freed >= self._buffer
        )
        if self._freed > 0 and not starves:
            if nothing_comes or self._freed >= self._batch:
                self._ask()
        elif nothing_comes and self.demand and not (self.queues.has_next or self.letters):
            # When a letter has been written, there will be room.
            self._make_room()

    def _lend(self) -> bool:
        """Lend what is free to groups whose operators have taken all events but those of the tail.

        Returns whether other groups starve too.
        """
        starving, self._starving = self._starving, {}
        for substream in starving:
            if self.state >= CLOSED:
                return False
            if not substream.is_starving:
                continue
            if self.overflow.lend(substream, self._freed):
                self._take_vacated()
                substream.feed_again()
            else:
                self._starving[substream] = None
        return bool(self._starving)

    def _ask(self) -> None:
        if self._starving:
            # They come first.
            self._drain()
        else:
            super()._ask()

    def _take_vacated(self) -> None:
        self._held -= self.overflow.vacated
        super()._take_vacated()

    def withdraw(self, is_gone: Callable[[Event[Any]], bool]) -> None:
        self._put_outputs()
        events: list[Event[Any]] = []
        for substream in self._backlogs():
            if substream.waits and (gone := self.overflow.withdraw(substream, is_gone)):
                events += gone
                self._refilled.append(substream)
        self._held -= len(events)
        self._freed += len(events)
        give_back_all(events)
        self.within(super().withdraw, is_gone)

    def _backlogs(self) -> Iterable[Substream]:
        return [group for group in self._groups.values() if isinstance(group, Substream)]

    def _make_room(self) -> None:
        """Close the groups that have rested for longest, of those that hold events.

        Not all of them: what they hold may leave later, and then the next ones need not be closed.
        """
        if self.overflow.shrink():
            # Rather than results that are made of a part of a group's events.
            self._take_vacated()
            self._noted = True
            return
        if self._holding is None:
            self._holding = OrderedDict.fromkeys(filter(self._is_holding, self._idle))
        if not self._making_room:
            keys: list[Any] = []
            held = 0
            while self._holding and held < self._room and len(keys) < self.demand:
                key, _ = self._holding.popitem(last=False)
                group = self._groups.get(key)
                if group is None or not (many := size(group)):
                    continue
                held += many
                keys.append(key)
                if isinstance(group, Substream):
                    self._making_room.add(group)
                self._idle.remove(key)
                self._closed_early.count("buffer")
            if keys:
                self._close_groups(keys)
                return
            if not self.queues and self._close_starving():
                return
        if not (self.queues or any(map(size, self._groups.values()))):
            self.fail(
                HoldExceeded(
                    f"{counted(self._held, 'event is', 'events are')} held inside the groups of "
                    f"{self.info}, by stages "
                    "that neither passed them on nor ended them when they were completed, as a "
                    "stage of your own has to. To hold more, raise buffer=."
                )
            )

    def _close_starving(self) -> bool:
        """Complete operators that hold events, request others, and keep all others out."""
        holding = [substream for substream in self._starving if substream.held]
        for substream in holding:
            self._closing += not substream.closed
            self._making_room.add(substream)
            self._closed_early.count("buffer")
            substream.close_before_tail()
        return bool(holding)

    # The end of groups.

    def _rest_used(self) -> None:
        """Note the groups that were used; close those above `max_groups`."""
        self._put_outputs()
        used = self._used.copy()
        self._used.clear()
        if self.state:
            return
        # One with a queue does not rest, and is noted again when it does.
        busy = self.queues.keys
        self._idle.used([key for key in used if key not in busy])
        if self._holding is not None:
            for key in used:
                self._holding.pop(key, None)
                if self._is_holding(key):
                    self._holding[key] = None
        while (
            many := len(self._groups) - self._closing
        ) > self._max_groups and self._idle.end_oldest():
            if len(self._groups) - self._closing < many:
                self._closed_early.count("max_groups")

    def _is_at_rest(self, key: Any) -> bool:
        self._put_outputs()
        group = self._groups.get(key)
        if group is None or key in self.queues.keys:
            return False
        return not isinstance(group, Substream) or group.is_at_rest

    def _is_holding(self, key: Any) -> bool:
        return self._is_at_rest(key) and size(self._groups[key]) > 0

    def _close_if_at_rest(self, key: Any) -> None:
        if self._is_at_rest(key):
            if self._holding is not None:
                self._holding.pop(key, None)
            self.within(self._close_groups, [key])

    def _close_groups(self, keys: Iterable[Any]) -> None:
        """Complete the operators of these groups, which emit what they hold."""
        groups, leaving = self._groups, self._leaving
        substreams: list[Substream] = []
        operators = self._operators
        for key in keys:
            group = groups.get(key)
            if group is None:
                continue
            if isinstance(group, Substream):
                substreams.append(group)
                continue
            del groups[key]
            held = size(group)
            output = whole_of(group, values=operators.whole(key) == "values")
            operators.forget(key)
            output.turn = leaving[key] = new_place(self, output.turn, held)
            self._outputs.append((key, [output]))
        # Before operators are called, which may cancel the pipeline.
        self._put_outputs()
        for substream in substreams:
            if not substream.closed:
                self._closing += 1
                substream.close()
        self._drain()

    def _close_the_rest(self) -> None:
        """After the end of the stream above: close groups as fast as their outputs are taken."""
        if self.queues.waiting < LARGEST and not self._slice.is_over(self.run.now()):
            self._noted = True
            # As many as have about so many events.
            groups = len(self._left)
            many = LARGEST * groups // max(self._held, groups, 1)
            self._close_groups(taken(self._left, max(1, many)))

    # The end.

    def on_completed(self) -> None:
        self._idle.clear()
        self._left.extend(self._groups)
        # All groups are going to be closed; what was requested is room for what is in their tails.
        self._holding = OrderedDict()
        self._freed += self.asked
        super().on_completed()

    def _end_if_idle(self) -> None:
        if not self._groups:
            super()._end_if_idle()

    def _close(self, state: State) -> None:
        self._idle.clear()
        self._left.clear()
        super()._close(state)

    def release(self) -> None:
        # In the order in which the events of each key have come.
        self._put_outputs()
        give_back_all(self.queues.close())
        groups = list(self._groups.values())
        # Not another dict: events may be on their way into this one.
        self._groups.clear()
        self._leaving.clear()
        self._earlier.clear()
        for group in groups:
            group.give_back()
            if not isinstance(group, Substream):
                self.overflow.vacated += size(group)
        super().release()
        self._take_vacated()

    # Numbers.

    def _hottest_keys(self) -> list[dict[str, Any]]:
        now = self.run.now()
        keys = hottest(self._groups, self._leaving, self._earlier, self.queues, HOTTEST)
        return [
            {"key": key, "waiting": waiting, "age": None if since is None else now - since}
            for key, waiting, since in keys
        ]

    def group_statistics(self) -> dict[str, Any]:
        groups = len(self._groups) + len(self._leaving)
        return super().group_statistics() | {
            "waiting": (held := self._held - self.overflow.vacated) - self.overflow.reserved,
            "peak": max(self._most_held, held),
            "groups": groups,
            "peak_groups": max(self._most_groups, groups),
            "closed_early": dict(self._closed_early.by_cause),
        }
