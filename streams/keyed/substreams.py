"""Operators inside groups: a stream for each key, with a state that lives as long as its group."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from math import inf
from typing import TYPE_CHECKING, Any, cast

from penstock.streams.errors import BuildError, HoldExceeded
from penstock.streams.flowable import Flowable
from penstock.streams.keyed.expiry import Idle
from penstock.streams.keyed.grouped import Group
from penstock.streams.keyed.key import Key, KeyFaults
from penstock.streams.keyed.place import Place
from penstock.streams.keyed.queues import hand_over
from penstock.streams.keyed.taken import taken
from penstock.streams.protocol.acknowledgement import Joined
from penstock.streams.protocol.blame import blame
from penstock.streams.protocol.event import Event, Turn, give_back_all
from penstock.streams.protocol.stage import StageInfo, Subscriber, Subscription, is_second
from penstock.streams.protocol.time_slice import LARGEST, TimeSlice
from penstock.streams.runtime.context import Run
from penstock.streams.rx.lift import HOLD

if TYPE_CHECKING:
    from penstock.streams.keyed.stage import KeyedStage

__all__ = ["Substreams"]


# What to do about groups that are closed early.
_ADVICE = {
    "buffer": "Raise buffer=, or give a shorter idle=, so that groups end by themselves.",
    "max_groups": "Raise max_groups=, or give a shorter idle=.",
}


class Substreams:
    """The `each=` of a `group_by`, above its keyed queues: opens a substream with a group.

    What comes out of a group's operators is put into the queue of its key. At most `buffer` events
    have a place: those that are before or inside the operators, or that something on its way out
    was made of. A substream ends when its group was idle, and gives what it holds.

    `_idle` has those whose groups ran empty, and keeps one whose group is at work again: it is the
    last to go when the group runs empty once more. `_holding` has those of them whose operators
    hold events: when the buffer is full, the one that has been idle for longest is ended.
    """

    below: KeyedStage

    def __init__(
        self,
        each: Callable[[Any], Flowable[Any]],
        key: Key,
        buffer: int,
        faults: KeyFaults,
        idle: float,
        max_groups: int | None,
        run: Run,
        info: StageInfo,
    ) -> None:
        self._each = each
        self._key = key
        self._buffer = buffer
        self._faults = faults
        self._seconds = idle
        self._idle = Idle[_Substream](idle, run, self._end_if_empty)
        self._max_groups = inf if max_groups is None else max_groups
        self._run = run
        self._info = info
        self._groups: dict[Any, _Group] = {}
        # What every group's operators make of all its values, once that is known; what they did for
        # the last group that was asked.
        self._whole: Callable[[list[Event[Any]]], Any] | None = None
        self._last_whole: Callable[[list[Event[Any]]], Any] | None = None
        # Substreams that take events, and all that have not ended: some still give their last.
        self._open = self._alive = 0
        self._holding: OrderedDict[_Substream, None] = OrderedDict()
        # Those that were used in the list that is being taken in.
        self.used: list[_Substream] = []
        # The one that was ended to make room, until it has given its last event.
        self._making_room: _Substream | None = None
        # Events that have a place, and those of them whose substream has ended.
        self.held = self._lost = 0
        # Asking anew for a quarter of the buffer at a time keeps the source in long strides.
        self._batch = max(1, buffer // 4)
        # Places that are free and not asked for.
        self._freed = 0
        # Whose outputs were taken out of the queues, which makes room for their next ones.
        self._taken: list[_Substream] = []
        # Letters that are not out, about events that have a place.
        self._letters = 0
        self._peak = self._peak_groups = 0
        self._closed_early: dict[str, int] = {}
        self._taking_in = self._source_ended = self._completing = self._done = False
        # After the end of the source: the groups that have still to end.
        self._left: deque[_Group] = deque()
        self._slice = TimeSlice(run, self.look_for_room)

    # Events from above.

    def on_subscribe(self, subscription: Subscription, /) -> None:
        if is_second(self, subscription):
            return
        self.upstream = subscription
        self.below.on_subscribe(self)
        if not self._source_ended:
            self.upstream.request(self._buffer)

    def on_events(self, events: list[Event[Any]], /) -> None:
        inside, self._taking_in = self._taking_in, True
        skipped, error = self._faults.put_all(events, self._put, self._key)
        self._freed += skipped
        if error is not None:
            self.broke(error)
            return
        self._taking_in = inside
        if self.held > self._peak:
            self._peak = self.held
        if len(self._groups) > self._peak_groups:
            self._peak_groups = len(self._groups)
        self.below.go_on()
        if self._freed >= self._batch:
            self._ask()
        self.look_for_room()

    def _put(self, events: list[Event[Any]]) -> tuple[int, Exception] | None:
        """Give each event to the substream of its key, up to the place of one whose key raises."""
        # First: the group that ends may be that of one of these.
        self._idle.end_expired()
        groups, key_of = self._groups, self._key.get
        find = groups.get
        for place, event in enumerate(events):
            try:
                key = key_of(event.value)
                group = find(key)
            except Exception as error:
                self._rest_used()
                return place, error
            if self._done:
                event.give_back()
                continue
            if group is None:
                group = groups[key] = _Group(key)
            substream = group.substream or self.begun(group, event)
            if substream is not None:
                substream.put(event)
        self._rest_used()
        return None

    def begun(self, group: _Group, event: Event[Any]) -> _Substream | None:
        """A new substream of a group, which begins with `event`; None if that has failed."""
        try:
            group.substream = self._opened(group)
            self._evict()
            return group.substream
        except Exception as error:
            blame(error, self._info, event)
            event.fail(error)
            self.broke(error)
            return None

    def _opened(self, group: _Group) -> _Substream:
        self._open += 1
        self._alive += 1
        if self._whole is not None:
            return Gathered(group, self, self._whole)
        group.substream = substream = Substream(group, self)
        stream: Group[Any, Any] = Group(group.key, substream.attach_inlet, self._info)
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
            flowable.attach(substream.outlet, self._run)
            return substream
        if not stream.is_key_read and whole is self._last_whole:
            # Nothing of the group decides on it, and nothing in it can be different next time.
            self._whole = whole
        self._last_whole = whole
        return Gathered(group, self, whole)

    def renew(self, group: _Group, events: Iterable[Event[Any]]) -> None:
        """A group's substream has ended, and there are more events: begin anew."""
        group.substream = None
        for event in events:
            substream = group.substream or self.begun(group, event)
            if substream is not None:
                self._lost -= 1
                substream.move(event)
        if self._completing and group.substream is not None:
            self._end(group.substream)

    # Events on their way out.

    def out(self, substream: _Substream, event: Event[Any], places: int = 0) -> None:
        """An event came out of a group's operators; it takes a place in the buffer.

        Beside those of the events that it came of, which they have until it leaves: `places`, where
        they do not see to that by themselves.
        """
        group = substream.group
        group.waiting += 1
        group.unfinished += 1
        self._freed -= 1
        event.turn = _Out(substream, self, event.turn, places)
        self.below.queues.put_one(group.key, event)
        if not self._taking_in:
            self.below.go_on()

    def left(self, substream: _Substream, places: int) -> None:
        """An output was taken out of the queues, or has ended there."""
        substream.group.waiting -= 1
        self._freed += 1 + places
        if places:
            self.held -= places
            self._lost -= places
        else:
            self._taken.append(substream)

    def after_taking(self) -> None:
        """What was taken has gone: there is room for the next outputs of the same groups."""
        substreams, self._taken = self._taken, []
        for substream in substreams:
            substream.taken()
        if self._freed >= self._batch:
            self._ask()

    def ended_outside(self, substream: _Substream) -> None:
        """An output of a group has ended its turn."""
        substream.group.unfinished -= 1
        self.look_at(substream.group)
        self.look_for_room()

    def too_many(self, held: int) -> None:
        """One group's operators hold more than they may."""
        self.broke(
            HoldExceeded(
                f"{held:,} inputs in a group of {self._info} wait for an output that does not come "
                f"(hold {HOLD:,}). Use an operator that answers at once, such as scan for reduce, "
                "or lift(operator, hold=...)."
            )
        )

    # Room.

    def freed(self, substream: Substream) -> None:
        """An event has left its group, or has ended in it."""
        self.held -= 1
        if substream.ended:
            self._lost -= 1
        if not substream.held:
            self._holding.pop(substream, None)
        self._freed += 1
        if self._freed >= self._batch:
            self._ask()
        self.look_for_room()

    def look_for_room(self) -> None:
        """Go on where the operators inside the groups hold so much that nothing moves by itself."""
        if self._taking_in:
            return
        if self._left:
            self._end_the_rest()
        if self._source_ended:
            return
        if self._occupied < self._buffer:
            # More events are on their way.
            return
        if self._freed > 0:
            self._ask()
        elif self.below.is_hungry:
            self._make_room()

    @property
    def _occupied(self) -> int:
        """The places that are taken, or free and not asked for."""
        return self.held + self.below.queues.waiting + self._freed

    def _ask(self) -> None:
        # What is being taken in comes before anything that is asked for now.
        if not (self._source_ended or self._taking_in):
            freed, self._freed = self._freed, 0
            self.upstream.request(freed)

    def _make_room(self) -> None:
        """The buffer is full, and more is wanted than can be given: end what was idle for longest.

        One at a time: what it holds may leave later, and then the next one need not be ended. None
        while letters are under way: there is room when they are out.
        """
        below, holding = self.below, self._holding
        while holding and self._making_room is None and self._is_stuck and below.is_hungry:
            self._making_room = substream = next(iter(holding))
            self._count("buffer")
            self._end(substream)
        if self._lost == self.held and self._is_stuck and not below.queues:
            self.broke(
                HoldExceeded(
                    f"{self.held:,} events are held inside the groups of {self._info}, by stages "
                    "that neither passed them on nor ended them when they were completed, as a "
                    "stage of your own has to. To hold more, raise buffer=."
                )
            )

    @property
    def _is_stuck(self) -> bool:
        """Whether the buffer is full, and no letter under way will make room."""
        return not self._letters and self._freed <= 0 and self._occupied >= self._buffer

    def letter_sent(self) -> None:
        """The letter about an event keeps its place."""
        self._letters += 1

    def letter_out(self) -> None:
        """The letter is out, and its place is free."""
        self._letters -= 1
        self.look_for_room()

    # The end of groups.

    def busy(self, substream: _Substream) -> None:
        """Its group has an event."""
        self._holding.pop(substream, None)

    def look_at(self, group: _Group) -> None:
        """Look whether a group holds neither an event nor a turn."""
        substream = group.substream
        if substream is None or not substream.empty:
            return
        if substream.ended:
            self._forget(group)
        elif not (substream.completing or self._completing):
            self.rests(substream)

    def rests(self, substream: _Substream) -> None:
        """Its group holds neither an event nor a turn: it is the last to go."""
        self.used.append(substream)
        if not self._taking_in:
            self._rest_used()
        self._evict()

    def _rest_used(self) -> None:
        """Note which groups have rested since they were used, in that order."""
        used, self.used = self.used, []
        if not used or self._completing:
            return
        rest = [one for one in used if one.empty and not one.completing]
        self._idle.used(rest)
        holding = self._holding
        for substream in rest:
            if substream.held:
                holding[substream] = None
                holding.move_to_end(substream)

    def _evict(self) -> None:
        if self._open <= self._max_groups:
            return
        self._rest_used()
        while (many := self._open) > self._max_groups and self._idle.end_oldest():
            if self._open < many:
                self._count("max_groups")

    def _count(self, cause: str) -> None:
        """A group is closed early, for this cause."""
        if cause not in self._closed_early:
            self._run.errors.warn(
                f"{self._info} has closed a group before it was idle for {self._seconds:g} s, for "
                f"lack of room ({cause}): what comes out of it is made of a part of its events. "
                f"{_ADVICE[cause]}"
            )
        for counts in (self._closed_early, self._run.errors.closed_early):
            counts[cause] = counts.get(cause, 0) + 1

    def _end_if_empty(self, substream: _Substream) -> None:
        if substream.empty:
            self._end(substream)

    def _end(self, substream: _Substream) -> None:
        if not substream.completing:
            self._open -= 1
            self._holding.pop(substream, None)
            substream.complete()

    def revived(self, substream: Substream) -> None:
        """A substream that had ended was given another event."""
        self._alive += 1
        self._lost -= substream.held - 1

    def ended(self, substream: _Substream, held: int) -> None:
        """A substream has given its last event; `held` of its events have a place."""
        self._alive -= 1
        self._lost += held
        if self._making_room is substream:
            self._making_room = None

    def over(self, group: _Group) -> None:
        """A substream has ended, and there is nothing more for its group."""
        if not group.unfinished:
            self._forget(group)
        self._check_completed()

    def _forget(self, group: _Group) -> None:
        group.substream = None
        if self._groups.get(group.key) is group:
            del self._groups[group.key]

    # The end.

    def on_completed(self) -> None:
        self._source_ended = self._completing = True
        self._idle.clear()
        self._left.extend(self._groups.values())
        self._end_the_rest()

    def _end_the_rest(self) -> None:
        """End the groups that are left: no faster than what comes out of them is taken."""
        left, below = self._left, self.below
        self._taking_in = True
        while left and below.queues.waiting < LARGEST:
            if self._slice.is_over(self._run.now()):
                break
            # What comes out of several goes on together.
            for group in taken(left, LARGEST):
                if group.substream is not None:
                    self._end(group.substream)
            below.go_on()
        self._taking_in = False
        self._check_completed()

    def _check_completed(self) -> None:
        if self._completing and not (self._alive or self._done):
            self._done = True
            self.below.on_completed()

    def on_error(self, error: BaseException, /) -> None:
        self._source_ended = True
        self.broke(error)

    def broke(self, error: BaseException) -> None:
        """The stream has failed here or above: give back what is in the groups, and say so."""
        if not self._done:
            self.cancel()
            self.below.on_error(error)

    def request(self, n: int, /) -> None:
        """The queues are filled as soon as there is something; nobody has to ask for it."""

    def cancel(self) -> None:
        if not self._source_ended:
            self._source_ended = True
            self.upstream.cancel()
        self._done = self._completing = True
        self._idle.clear()
        self._left.clear()
        for group in self._groups.values():
            if group.substream is not None:
                group.substream.give_back()

    def numbers(self) -> dict[str, Any]:
        """Those statistics of `group_by` that are different where groups have operators."""
        return {
            "waiting": self.held,
            "peak": max(self._peak, self.held),
            "groups": len(self._groups),
            "peak_groups": max(self._peak_groups, len(self._groups)),
            "closed_early": dict(self._closed_early),
        }


class _Group:
    """What outlives a substream of a key: how many outputs wait, and how many have not ended."""

    __slots__ = ("key", "substream", "unfinished", "waiting")

    def __init__(self, key: Any) -> None:
        self.key = key
        self.substream: _Substream | None = None
        self.waiting = self.unfinished = 0


class _Out:
    """What an output holds as a turn: its share of places, until it is taken out of the queue.

    And then what these events held before they came into the group, until its turn there has ended.
    """

    __slots__ = ("_has_left", "_places", "_stage", "_substream", "_turn", "holders")

    def __init__(
        self, substream: _Substream, stage: Substreams, turn: Turn | None, places: int
    ) -> None:
        self.holders = 1
        self._substream = substream
        self._stage = stage
        self._turn = turn
        self._places = places
        self._has_left = False

    def leave(self) -> Turn:
        if not self._has_left:
            self._has_left = True
            self._stage.left(self._substream, self._places)
        if self._turn is not None:
            self._turn = self._turn.leave()
        return self

    def end(self) -> None:
        self.holders -= 1
        if self.holders:
            return
        if not self._has_left:
            self._has_left = True
            self._stage.left(self._substream, self._places)
        self._stage.ended_outside(self._substream)
        if self._turn is not None:
            self._turn.end()

    def outside(self) -> Turn:
        self.holders += 1
        return self

    def place(self) -> Turn | None:
        return None if self._turn is None else self._turn.place()


class Gathered:
    """One group whose operators only make a value of all its values, at the end, by `whole`.

    It needs no stage. A value of one event is that event's own.
    """

    __slots__ = ("_events", "_stage", "_whole", "completing", "ended", "group")

    def __init__(
        self, group: _Group, stage: Substreams, whole: Callable[[list[Event[Any]]], Any]
    ) -> None:
        self.group = group
        self.completing = self.ended = False
        self._stage = stage
        self._whole = whole
        self._events: list[Event[Any]] = []

    @property
    def empty(self) -> bool:
        """Whether its group holds neither an event nor a turn."""
        return not self.group.unfinished

    @property
    def held(self) -> int:
        """Its group's events that have a place."""
        return len(self._events)

    def put(self, event: Event[Any]) -> None:
        """One more event of the group. After the end, what comes begins anew."""
        stage = self._stage
        if self.ended:
            substream = stage.begun(self.group, event)
            if substream is not None:
                substream.put(event)
            return
        stage.held += 1
        events = self._events
        events.append(event)
        if len(events) > HOLD:
            stage.too_many(len(events))
        else:
            # As `rests`, which is not so quick.
            stage.used.append(self)

    def move(self, event: Event[Any]) -> None:
        """The same for an event that was another substream's."""
        place = cast(Place, event.turn)
        place.substream.held -= 1
        self._stage.held -= 1
        event.turn = place.outer
        self.put(event)

    def complete(self) -> None:
        """No more events: give what came of them."""
        events, self._events = self._events, []
        self.completing = self.ended = True
        stage = self._stage
        stage.ended(self, len(events))
        value = self._whole(events)
        if len(events) == 1:
            (event,) = events
            event.value = value
        else:
            created = min([event.created for event in events])
            event = Event(value, created, Joined(events), events[0].token)
            event.turn = hand_over(events)
        stage.out(self, event, len(events))
        stage.over(self.group)

    def taken(self) -> None:
        """The queue gave its only event away."""

    def give_back(self) -> None:
        """The stage was cancelled."""
        events, self._events = self._events, []
        self.completing = self.ended = True
        give_back_all(events)


class Substream:
    """One group's operators: events go in by `put`, and come out by `Substreams.out`.

    Operators that end early, as `take` does, stay until the group ends, and what still comes
    is dropped. Events that come while the last results are on their way open the next substream
    when those have gone.
    """

    def __init__(self, group: _Group, stage: Substreams) -> None:
        self.group = group
        self._stage = stage
        self._raw: deque[Event[Any]] = deque()
        self._late: list[Event[Any]] = []
        self._demand = 0
        self._emitting = False
        self._inlet: Subscriber[Any] | None = None
        self._closed = self._finished = False
        self.completing = self.ended = False
        self.held = 0
        """Its group's events that have a place."""
        self.outlet = _Outlet(self, stage)

    @property
    def empty(self) -> bool:
        """Whether its group holds neither an event nor a turn."""
        return not (self._raw or self._late or self.group.unfinished)

    def attach_inlet(self, subscriber: Subscriber[Any], run: Run) -> None:
        self._inlet = subscriber
        subscriber.on_subscribe(self)

    def put(self, event: Event[Any]) -> None:
        """One more event of the group, which takes a place in the buffer."""
        self.held += 1
        self._stage.held += 1
        event.turn = Place(self, event.turn)
        self._take_in(event)

    def move(self, event: Event[Any]) -> None:
        """An event that was another substream's of the group."""
        cast(Place, event.turn).move(self)
        self._take_in(event)

    def _take_in(self, event: Event[Any]) -> None:
        if not self.completing:
            self._stage.busy(self)
            self._raw.append(event)
            self._emit()
            self._stage.look_at(self.group)
            return
        self._late.append(event)
        if self.ended:
            self.ended = False
            self._stage.revived(self)
        self._settle()

    def request(self, n: int, /) -> None:
        self._demand += n
        self._emit()

    def cancel(self) -> None:
        self._closed = True
        self._emit()

    def _emit(self) -> None:
        if self._emitting:
            return
        self._emitting = True
        raw = self._raw
        try:
            while raw and (self._demand or self._closed):
                event = raw.popleft()
                if self._closed or self._inlet is None:
                    event.drop("group ended")
                else:
                    self._demand -= 1
                    self._inlet.on_events([event])
        finally:
            self._emitting = False
        if self.completing and not raw and not self._closed:
            self._closed = True
            if self._inlet is not None:
                self._inlet.on_completed()

    def complete(self) -> None:
        """No more events: let the operators give what they hold."""
        self.completing = True
        self._emit()
        self._settle()

    def freed(self) -> None:
        """A place is free again."""
        self.held -= 1
        self._stage.freed(self)

    def letter_sent(self) -> None:
        """An event was given up on in the operators; its letter keeps the place."""
        self._stage.letter_sent()

    def letter_out(self) -> None:
        """A letter is out."""
        self._stage.letter_out()

    def taken(self) -> None:
        """The queue gave an event away: there is room for another."""
        if not self._finished:
            self.outlet.request()
        elif not self.ended:
            self._settle()

    def finish(self) -> None:
        """The operators have given their last event."""
        self._finished = self._closed = True
        self._emit()
        if self.completing:
            self._settle()
        else:
            self._stage.look_at(self.group)

    def _settle(self) -> None:
        """End, or begin anew with what came late, once the last results are on their way."""
        if not self.completing or not self._finished or (self._late and self.group.waiting):
            return
        if not self.ended:
            self.ended = True
            self._stage.ended(self, self.held)
            if self._late:
                late, self._late = self._late, []
                self._stage.renew(self.group, late)
            else:
                self._stage.over(self.group)

    def broke(self, error: BaseException) -> None:
        self.ended = self._finished = True
        self._stage.broke(error)

    def give_back(self) -> None:
        """The stage was cancelled: return what has not gone in yet, release the rest."""
        self.completing = self._closed = True
        waiting = [*self._raw, *self._late]
        self._raw.clear()
        self._late.clear()
        give_back_all(waiting)
        if not self._finished:
            self._finished = True
            self.outlet.cancel()
        self.ended = True


_Substream = Substream | Gathered


class _Outlet:
    """The subscriber at the end of a group's operators; asks for one event at a time."""

    _upstream: Subscription | None = None

    def __init__(self, substream: Substream, stage: Substreams) -> None:
        self._substream = substream
        self._stage = stage

    def on_subscribe(self, subscription: Subscription, /) -> None:
        self._upstream = subscription
        subscription.request(1)

    def request(self) -> None:
        if self._upstream is not None:
            self._upstream.request(1)

    def cancel(self) -> None:
        if self._upstream is not None:
            self._upstream.cancel()

    def on_events(self, events: list[Event[Any]], /) -> None:
        for event in events:
            self._stage.out(self._substream, event)

    def on_completed(self) -> None:
        self._substream.finish()

    def on_error(self, error: BaseException, /) -> None:
        self._substream.broke(error)
