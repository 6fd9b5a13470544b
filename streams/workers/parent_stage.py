"""The stage of the parent: deals events to workers, and sends their results on."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable
from functools import partial
from operator import attrgetter
from typing import Any, Protocol, cast, runtime_checkable

from penstock.streams.base.errors import (
    BuildError,
    NotPicklable,
    WorkerLost,
    WrongType,
    describe,
)
from penstock.streams.base.keys import Key, key_function
from penstock.streams.execution.call import closing_event, family_of, taken_family
from penstock.streams.execution.results import InOrder, Results
from penstock.streams.execution.waiting import Siblings
from penstock.streams.failures.dead_letters import channel_to
from penstock.streams.failures.error_policy import ErrorPolicy
from penstock.streams.failures.policy import OverflowPolicy, sink_of
from penstock.streams.keyed.queues import release
from penstock.streams.keyed.stage import HOTTEST, STARVED
from penstock.streams.limits import Limiter
from penstock.streams.protocol.blame import identify, identify_in, note_end
from penstock.streams.protocol.event import (
    FAILED,
    FORGIVEN,
    RETURNED,
    Ending,
    Event,
    Turn,
    end_all,
    give_back_all,
    take_turns,
)
from penstock.streams.protocol.identity import identities, shown
from penstock.streams.protocol.stage import CANCELLED, CLOSED, COMPLETING, OPEN, Subscriber
from penstock.streams.protocol.stage import FAILED as STOPPED
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.runtime.timer import Timer
from penstock.streams.stages.finishing_stage import FinishingStage
from penstock.streams.workers import messages
from penstock.streams.workers.key_owners import Dealt, Owner, Owners, Peer
from penstock.streams.workers.limit import CommonLimit
from penstock.streams.workers.messages import Link
from penstock.streams.workers.numbers import of_ended, successive, together
from penstock.streams.workers.placement import Section
from penstock.streams.workers.sending import QUIET, Sending
from penstock.streams.workers.silence import SilenceWatch

__all__ = ["ParentStage", "WorkerFactory"]

# An event whose workers have ended so often, it alone being there the last times, is at fault.
_KILLS = 3

# Events that a worker must have, unless it lacks slots for fewer, before a part of them goes to
# another one, and the seconds between two such moves.
_MUCH, _EVEN = 8, 0.01

# A worker that ends so often before it has reported anything will not get better.
_FALSE_STARTS = 3


_CLOSED_EARLY = (
    "a sink that a worker process had opened has closed before the end of the stream. A sink that "
    "ends the pipeline by itself cannot be opened in workers: leave its in_workers out"
)


@runtime_checkable
class WorkerFactory(Protocol):
    """Where workers come from."""

    workers: int

    def open(
        self,
        worker: int,
        section: Section,
        window: int,
        received: Callable[[Any], None],
        lost: Callable[[str], None],
    ) -> Link:
        """Start a worker, or one in place of another that has ended.

        `received` is called with each of its messages, `lost` once, with how it ended, after all
        of them, unless the link was closed before. Raises OSError if the system cannot start it.
        """
        ...

    async def close(self) -> None:
        """End what is left."""


def _unfit_key(section: Section, value: Any) -> WrongType | None:
    """The error of a value whose key is not equal to the key of its copy in a worker."""
    read = key_function(section.by)
    try:
        key, copied = read(value), read(pickle.loads(pickle.dumps(value)))
    except Exception:
        # Reported where the value is sent, or its key is read.
        return None
    kind = cast(Any, type(key))
    if copied is key or kind.__eq__ is not object.__eq__:
        return None
    return WrongType(
        f"{section.infos[0]}: {describe(key)} is equal to nothing but itself, so its copy in a "
        "worker process is another key, and order per key would be lost. Give its class __eq__ and "
        "__hash__, group by a field of it, or leave workers= out"
    )


def _say_the_same(error: BaseException, other: BaseException) -> bool:
    return type(error) is type(other) and str(error) == str(other)


class ParentStage(FinishingStage):
    """Has at most `bound` events and results that were not sent on, in all workers together.

    It completes when the stream above has and all events have ended. After an error the workers
    return what has not begun; on cancel they end, and all events are returned. Which event has
    ended a worker needs no `Trial`: the parent survives and knows what the worker had. So it keeps
    a count for each of these events, and one worker does them one at a time.
    """

    def __init__(
        self,
        downstream: Subscriber[Any],
        run: Run,
        info: StageInfo,
        section: Section,
        crew: WorkerFactory,
    ) -> None:
        super().__init__(downstream, run, info)
        work = section.work
        self._section = section
        self._crew = crew
        self._results = (InOrder if work.ordered else Results)(downstream, work.window)
        self._siblings = Siblings()
        self._kills: dict[Event[Any], int] = {}
        bound = section.bound(run.limit)
        self._bound = 1 << 20 if bound is None else bound
        # Whether events hold turns, which end with their calls.
        self._has_turns = section.above.turns
        self._policies = {
            stage.number: ErrorPolicy(stage.policy or "stop", run, stage)
            for stage in section.infos
            if stage.policy is not None
        }
        self._sinks = {
            stage.number: (stage, sink)
            for stage in section.infos_with_sinks
            if (sink := sink_of(stage.policy)) is not None
        }
        self._peers = [Peer(number) for number in range(crew.workers)]
        first, key = section.infos[0], None if section.by is None else Key(section.by)
        # Of a key, the most that may wait here; workers have the others.
        buffer = 0 if key is None else first.bound or 0
        self._buffer = buffer or self._bound
        self._least_asked = max(1, self._buffer // 4)
        self._overflow = section.overflow(run, first)
        self._owners = Owners(key, self._peers, self._overflow)
        self._peak_waiting = 0
        self._limit = CommonLimit(
            *(section, run, self._peers, self._owners, self._withdraw, self.stop)
        )
        ship = partial(self.within, self._ship)
        self._sending = Sending(
            *(run, info, section, self._bound - buffer, self._results, self._limit),
            *(self._kills, ship, self._cannot_be_sent, self._lost_by_source),
        )
        self._starved = Timer(run, info, partial(self.within, self._make_room))
        self._has_looked_at_key = section.by is None
        self._evened = 0.0
        silent = partial(self.within, self._fell_silent)
        self._silence = SilenceWatch(run, info, section.working, self._peers, silent, _KILLS)
        self._is_open = False
        # Errors of workers that have closed what their handler used.
        self._late: list[BaseException] = []
        if work.limiter is not None:
            run.add_tunable(section.working, self.retune)
        if key is not None:
            run.add_keyed(first, self.set_share)
        run.withdrawals.append(self.withdraw)
        for stage in section.infos:
            run.add_stage(stage, partial(self.stage_statistics, stage))
        run.on_close(self._close_crew)

    def retune(self, limiter: Limiter) -> None:
        """Follow another limiter from the next event on; nothing is cancelled."""
        self._limit.retune(limiter)
        self._sending.soon()

    def set_share(self, share: int | None, policy: OverflowPolicy | None) -> None:
        """Replace the share of a key, or what becomes of more, for the events that come now."""
        self._overflow.set(share, policy, self._owners.backlogs)

    def withdraw(self, is_gone: Callable[[Event[Any]], bool]) -> None:
        """Return the events for which this is true, unless they have begun before."""
        while gone := self._owners.withdraw(is_gone):
            # Others of their turns may follow, which are gone, too.
            self._return(gone)
        for peer in self._peers:
            if any(is_gone(event) for event, _ in peer.out.values()):
                self._withdraw(peer)
        self._drain()

    # Demand.

    def _begin(self) -> None:
        self._is_open = True
        for peer in self._peers:
            if self.state < STOPPED:
                self._start(peer)
        self._limit.lend(changed=True)
        if self.state < STOPPED:
            self._silence.begin()

    def _start(self, peer: Peer) -> None:
        peer.is_recalled = peer.is_completed = peer.is_told = False
        peer.heard = 0
        self._silence.started(peer)
        call = partial(self.run.call, self.info)
        received, lost = partial(call, self.received, peer), partial(call, self.lost, peer)
        try:
            peer.link = self._crew.open(
                peer.number, self._section, self._sending.room, received, lost
            )
        except OSError as error:
            self.stop(WorkerLost(f"a worker process cannot be started: {error}"))
        else:
            if any(observer.counts for observer in self.run.observers):
                peer.send(messages.Counted())
            if self.run.tracing is not None:
                peer.send(messages.Traced(*self.run.tracing.options))

    def request(self, n: int, /) -> None:
        if self.state >= CLOSED:
            return
        self._results.request(n)
        if not self._is_open:
            self._begin()
        self._drain()

    def _proceed(self) -> None:
        if any(self._sending.makes_room(peer) for peer in self._peers):
            self._sending.soon()
        error, self._overflow.error = self._overflow.error, None
        if error is not None:
            self.stop(error)
        if self.state is not OPEN or not self._is_open:
            return
        room = self._free
        if room >= self._least_asked or (room > 0 and not self._owners.is_busy and not self.asked):
            self.ask(room)
        if self.asked or not self._is_starving():
            self._starved.cancel()
        elif not self._starved.is_set:
            self._starved.set(STARVED)

    @property
    def _free(self) -> int:
        """How many places no event has, and no requested event will take."""
        places = self._owners.places
        waiting = places - sum(len(peer.out) for peer in self._peers)
        return (
            min(self._bound - places - self._results.waiting, self._buffer - waiting) - self.asked
        )

    def _is_starving(self) -> bool:
        """Whether a worker that answers could have more calls than it has keys, or events."""
        return any(self._limit.has_spare(peer) for peer in self._owners.ready)

    def _make_room(self) -> None:
        """Request what is free, or make room for the keys of the workers that go on: the other
        events, of workers that say nothing and of keys that are slow, fill the bound."""
        if self.state is not OPEN:
            return
        peers = [peer for peer in self._peers if peer.quiet >= QUIET]
        lacking = self._least_asked - self._free
        if not peers and lacking > 0:
            if wait := self._owners.turnover.until_room(self.run.now()):
                self._starved.set(wait)
            else:
                peers = self._peers
        if peers and lacking > 0:
            self._owners.make_room(peers, lacking)
        if (room := self._free) > 0:
            self.ask(room)

    # Events.

    def take(self, events: list[Event[Any]], /) -> None:
        if not self._has_looked_at_key:
            self._has_looked_at_key = True
            if (error := _unfit_key(self._section, events[0].value)) is not None:
                give_back_all(events)
                self.stop(error)
                return
        if self._has_turns:
            events = [event for event in events if self._may_begin(event)]
        self._deal(events)
        self._sending.soon()

    def _deal(self, events: list[Event[Any]]) -> None:
        self._results.begin(events)
        for event in self._owners.deal(events):
            self._results.end(event)
        waiting = self._waiting
        if waiting > self._peak_waiting:
            self._peak_waiting = waiting

    @property
    def _waiting(self) -> int:
        """How many events in memory no worker has."""
        out = sum(len(peer.out) for peer in self._peers)
        return self._owners.unfinished - out - self._overflow.on_disk

    def keys_of(self, events: list[Event[Any]], /) -> list[Any]:
        """The keys by which the events are dealt."""
        return self._owners.keys_of(events)

    def _may_begin(self, event: Event[Any]) -> bool:
        turn = event.turn
        return turn is None or turn.holders < 2 or self._siblings.enter(turn, event)

    def on_events(self, events: list[Event[Any]], /) -> None:
        if self.state:
            self.asked -= len(events)
            give_back_all(events)
        else:
            super().on_events(events)

    def _ship(self) -> None:
        """Send to each worker the events that wait for it, and room for more results."""
        if self.state < STOPPED:
            self._even_out()
            for peer in self._peers:
                if peer.is_completed and peer.link is None and peer.ready:
                    self._start_again(peer)
            self._limit.lend()
            for peer in self._peers:
                self._sending.send_events(peer)
        for peer in self._peers:
            self._sending.send_room(peer)
        if self.state is COMPLETING and self._section.sinks:
            self._end_workers()

    def _end_workers(self) -> None:
        """Let the workers know that no more events come, when they have all: a sink may write the
        last ones only then.

        If another worker dies, one that has ended may be needed again: it is started anew.
        """
        if all(peer.is_told for peer in self._peers) or self._siblings.waiting:
            return
        if self._owners.has_waiting or any(peer.is_recalled for peer in self._peers):
            return
        for peer in self._peers:
            if not peer.is_told:
                peer.is_told = True
                peer.send(messages.Complete())

    def _cannot_be_sent(self, event: Event[Any], owner: Owner, error: NotPicklable) -> None:
        self._owners.end((owner,))
        failure = NotPicklable(f"an event {error}")
        self._settle_failed(event, failure, self._section.working.number, 1)

    def _lost_by_source(self, dealt: list[Dealt]) -> None:
        self._owners.end([owner for _, owner in dealt])
        self._return([event for event, _ in dealt])

    def _return(self, events: list[Event[Any]]) -> None:
        """Return events that no worker has."""
        turns = self._turns_of(events)
        self._give_back(events)
        self._end_turns(turns)

    # Outcomes.

    def received(self, peer: Peer, message: Any) -> None:
        """A message of a worker."""
        peer.heard += 1
        peer.is_heard = True
        if peer.quiet:
            self._hear(peer)
        if self.state < CLOSED:
            self.within(self._handle, peer, message)
        elif isinstance(message, messages.Numbers):
            peer.numbers = message.stages
        elif isinstance(message, messages.Warn):
            self._warn(peer, message)
        elif isinstance(message, messages.Stopping):
            error = message.sent.raised()
            known = self._late if self.error is None else [self.error, *self._late]
            if not any(_say_the_same(one, error) for one in known):
                self._late.append(error)
        elif isinstance(message, messages.Completed):
            peer.is_completed = True

    def _warn(self, peer: Peer, message: messages.Warn) -> None:
        text, fields = message.text, message.fields or {}
        if message.number in peer.out:
            event, _ = peer.out[message.number]
            text = identify_in(text, event)
            fields["identity"] = shown(identities(event))
        self.run.errors.warn(text, **fields)

    def _hear(self, peer: Peer) -> None:
        """A worker says something, or has ended, after a while."""
        if peer.is_silent:
            self._silence.answered(peer)
            self._limit.choose_ready()
        peer.quiet = 0

    def _fell_silent(self, peer: Peer) -> None:
        """Let others have the events that a worker has not got yet, and new keys."""
        self._limit.choose_ready()
        if self.state < STOPPED:
            # It reads this before it begins more.
            self._withdraw(peer)
            self._move(peer)
            self._sending.soon()

    def _stopping(self, peer: Peer, message: messages.Stopping) -> None:
        error = message.sent.raised()
        for number in message.numbers:
            identify(error, peer.out[number][0])
        # All workers may fail in the same way, as where their sinks cannot connect.
        if self.error is None or not _say_the_same(self.error, error):
            self.stop(error)

    def _handle(self, peer: Peer, message: Any) -> None:
        match message:
            case messages.Ended():
                self._ended(peer, message)
            case messages.Completions():
                self._limit.completed(peer, message.ends)
                return
            case messages.Parts():
                self._parts(peer, message)
            case messages.Over():
                self._over(peer, message)
            case messages.Letter():
                self._letter(peer, message)
            case messages.Unsendable():
                self._unsendable(peer, message)
            case messages.Numbers():
                # It has lived until its first report.
                peer.false_starts = 0
                peer.numbers = message.stages
            case messages.Confirmed():
                self._limit.confirmed(peer, message.grant)
            case messages.Stopping():
                self._stopping(peer, message)
            case messages.Withdrawn():
                peer.is_recalled = False
                self._move(peer)
            case messages.Warn():
                self._warn(peer, message)
            case messages.Completed():
                peer.is_completed = True
                if not peer.is_told and self.state < STOPPED:
                    self.stop(BuildError(_CLOSED_EARLY))
            case _:
                raise TypeError(f"unknown message: {message!r}")
        if peer.ready and not (peer.is_active or peer.is_recalled):
            self._move(peer)
        self._sending.soon()

    def _move(self, peer: Peer) -> None:
        """Deal anew what waits for a worker."""
        self._owners.move(peer)
        if self._kills:
            for each in self._peers:
                self._count_suspects(each)
            self._limit.choose_ready()

    def _count_suspects(self, peer: Peer) -> None:
        peer.suspects = sum(event in self._kills for event in self._owners.of(peer))

    def _pop(self, peer: Peer, numbers: list[int]) -> list[Event[Any]]:
        """Events have ended in their worker."""
        dealt = list(map(peer.out.pop, numbers))
        self._owners.end([owner for _, owner in dealt])
        events = [event for event, _ in dealt]
        if self._kills:
            for event in events:
                self._acquit(peer, event)
        return events

    def _acquit(self, peer: Peer, event: Event[Any]) -> None:
        """A worker has survived an event."""
        if self._kills.pop(event, 0) and peer.suspects:
            peer.suspects -= 1
            if not peer.suspects:
                self._limit.choose_ready()

    def _ended(self, peer: Peer, message: messages.Ended) -> None:
        peer.false_starts = 0
        numbers, results, starts, ends = message
        events = self._pop(peer, numbers)
        for event, result, started, ended in zip(events, results, starts, ends, strict=True):
            event.value = result
            event.started = started
            event.ended = ended
        peer.room += len(events)
        turns = self._turns_of(events)
        try:
            self._results.complete(events)
        finally:
            self._end_turns(turns)

    def _turns_of(self, events: list[Event[Any]]) -> list[Turn]:
        return take_turns(events) if self._has_turns else []

    def _end_turns(self, turns: list[Turn]) -> None:
        if not turns:
            return
        release(turns)
        following = [self._siblings.next(turn) for turn in turns]
        begun = [event for event in following if event is not None]
        self._deal(begun)

    def _parts(self, peer: Peer, message: messages.Parts) -> None:
        peer.room += len(message.numbers)
        for number, result, started, ended in zip(*message, strict=True):
            event, _ = peer.out[number]
            event.started = started
            event.ended = ended
            part = family_of(event).child(result)
            # The event itself keeps its turn until its call has ended.
            if part.turn is not None:
                part.end_turn()
            self._results.add(event, part)
        self._results.deliver()

    def _letter(self, peer: Peer, message: messages.Letter) -> None:
        event, _ = peer.out[message.number]
        value = message.value if message.has_value else event.value
        part = family_of(event).child(value)
        stage, sink = self._sinks[message.stage]
        channel_to(sink, self.run).send(part, message.error, str(stage), message.attempts)

    def _unsendable(self, peer: Peer, message: messages.Unsendable) -> None:
        event, _ = peer.out[message.number]
        part = family_of(event).child(event.value)
        if not self._policies[self._section.working.number].survives(part, message.error):
            self.stop(message.error)

    def _over(self, peer: Peer, message: messages.Over) -> None:
        peer.false_starts = 0
        ending = Ending(message.ending)
        if ending is RETURNED and peer.is_recalled and self.state < STOPPED:
            # In their order, before those that came later.
            peer.put_back([peer.out.pop(number) for number in message.numbers])
            return
        # A stage that stops because of an error has said so before.
        reverted = ending is FAILED and self.state < STOPPED
        if isinstance(message.why, BaseException):
            for number in message.numbers:
                identify(message.why, peer.out[number][0])
        if message.why is not None and (ending is FORGIVEN or reverted):
            self.run.errors.noted(message.why, len(message.numbers))
            note_end(message.why, ends=False)
        events = self._pop(peer, message.numbers)
        turns = self._turns_of(events)
        alone: list[Event[Any]] = []
        for event in events:
            self._results.end(event)
            family = taken_family(event)
            if family is None:
                alone.append(event)
                continue
            if ending >= FORGIVEN:
                end_all([family.child(None)], ending, message.why)
            family.close()
        end_all(alone, ending, message.why)
        self._end_turns(turns)

    def _settle_failed(
        self, event: Event[Any], error: Exception, stage: int, attempts: int
    ) -> None:
        """An event has failed outside its handler, for good."""
        turns = self._turns_of([event])
        policy = self._policies[stage]
        survives = policy.survives(closing_event(event), error, attempts)
        self._results.end(event)
        if not survives:
            self.stop(error)
        self._end_turns(turns)

    # Workers that end.

    def _withdraw(self, peer: Peer) -> None:
        """Take back the events that a worker has not begun, so that others may begin them."""
        if not (peer.is_recalled or peer.is_told) and peer.link is not None:
            peer.is_recalled = True
            peer.send(messages.Withdraw())

    def _even_out(self) -> None:
        """Where a worker has nothing to do, and another much, divide that anew."""
        now = self.run.now()
        if now < self._evened + _EVEN or all(peer.load for peer in self._owners.ready):
            return
        fullest = max(self._owners.ready, key=attrgetter("load"))
        if (
            (fullest.load >= _MUCH or self._limit.is_short(fullest))
            and not fullest.suspects
            and self._owners.can_divide(fullest)
        ):
            self._evened = now
            self._withdraw(fullest)

    def lost(self, peer: Peer, how: str) -> None:
        """A worker has ended before it was asked to."""
        peer.link = None
        self._hear(peer)
        if self.state >= CLOSED:
            return
        peer.room = 0
        if peer.numbers:
            peer.before.append(of_ended(peer.numbers))
            peer.numbers = {}
        if peer.is_completed:
            # Events may wait for it, since another one has ended.
            self._sending.soon()
        else:
            self.within(self._replace, peer, how)

    def _start_again(self, peer: Peer) -> None:
        """Start another worker in the place of one that has ended."""
        self._limit.lost(peer)
        self._start(peer)
        self._limit.replaced(peer)

    def _replace(self, peer: Peer, how: str) -> None:
        # A worker answers its first grant, which comes before its first event.
        has_begun = bool(peer.heard and peer.out)
        alone = has_begun and len(peer.out) == 1
        again = list(peer.out.values())
        peer.out.clear()
        if has_begun:
            for event, _ in again:
                # Among others it may be as innocent as these, however often.
                kills = self._kills.get(event, 0)
                self._kills[event] = kills + 1 if alone else max(kills, 1)
        if alone and self._kills[again[0][0]] >= _KILLS:
            ((event, owner),) = again
            again = []
            del self._kills[event]
            peer.suspects = max(0, peer.suspects - 1)
            self._owners.end((owner,))
            error = WorkerLost(
                f"its worker process ended {_KILLS} times while it worked on this event, the last "
                f"time by {how}"
            )
            self._settle_failed(event, error, self._section.working.number, _KILLS)
        if self.state >= STOPPED:
            # Nothing begins any more.
            self._owners.end([owner for _, owner in again])
            self._give_back(event for event, _ in again)
            return
        peer.put_back(again)
        self._count_suspects(peer)
        peer.restarts += 1
        peer.false_starts += not has_begun
        if peer.false_starts >= _FALSE_STARTS:
            self.stop(WorkerLost(f"a worker process ends before it has begun anything, by {how}"))
            return
        self._start_again(peer)
        follows = "; another one is started"
        if again and has_begun:
            one = len(again) == 1
            counted = "1 event that it had is" if one else f"{len(again):,} events that it had are"
            follows = f"; {counted} worked on again{'' if one else ', one at a time'}"
        # If none can be started, the error of that ends the run.
        self.run.errors.warn(
            f"a worker process ended by {how}{follows if self.state < STOPPED else ''}"
        )
        if not peer.is_active:
            self._move(peer)
        self._sending.soon()

    # The end.

    def end(self) -> None:
        """No more events come from above."""
        super().end()
        if self._section.sinks:
            self._sending.soon()

    def stop(self, error: BaseException) -> None:
        """Begin nothing more; calls in flight may finish before the error passes on."""
        # A worker that has reported its own error may have nothing more to say.
        self._silence.end()
        super().stop(error)
        self._drain()

    def give_back_unstarted(self) -> None:
        give_back_all(self._siblings.clear())
        self._starved.cancel()
        for events in self._owners.close():
            self._give_back(events)
        for peer in self._peers:
            peer.is_recalled = peer.is_told = True
            peer.send(messages.Stop())

    def is_busy(self) -> bool:
        results = self._results
        return bool(
            self._owners.is_busy or self._siblings.waiting or results.waiting or results.delivering
        )

    def release(self) -> None:
        is_cancelled = self.state is CANCELLED
        for peer in self._peers:
            if is_cancelled or not peer.is_told:
                peer.is_told = True
                peer.send(messages.Cancel() if is_cancelled else messages.Complete())
        self._starved.cancel()
        left = [event for peer in self._peers for event, _ in peer.out.values()]
        for peer in self._peers:
            peer.out.clear()
        self._results.give_back()
        self._give_back(self._siblings.clear())
        self._give_back(left)
        for events in self._owners.close():
            self._give_back(events)
        self._owners.clear()

    def _give_back(self, events: Iterable[Event[Any]]) -> None:
        for event in events:
            self._results.end(event)
            closing_event(event).give_back()

    async def _close_crew(self) -> None:
        self._sending.close()
        if self._is_open:
            self._silence.end()
            await self._crew.close()
        for error in self._late[1:]:
            self.run.late_error(error)
        if self._late:
            raise self._late[0]

    # Numbers.

    def stage_statistics(self, stage: StageInfo) -> dict[str, Any]:
        """The numbers of a stage in all `workers` together, and of each by itself."""
        by_place = [
            [
                numbers[stage.number]
                for numbers in [*peer.before, peer.numbers]
                if stage.number in numbers
            ]
            for peer in self._peers
        ]
        parts = [successive(workers) for workers in by_place]
        has_keys = self._section.by is not None and stage.number == self._section.infos[0].number
        if has_keys:
            parts.append(self._numbers_of_keys())
        found = together(parts)
        if has_keys:
            # Workers have no shares.
            found |= self._overflow.statistics()
            found["routed"] = found.get("routed", 0) + self._overflow.routed
        if "peak" in found and (bound := found["bound"]) is not None:
            # The bound of each worker, and of all of them together.
            found["bound"] = min(len(self._peers) * bound, self._bound)
            found["peak"] = min(found["peak"], found["bound"])
        if stage.number == self._section.working.number:
            in_flight = found.get("in_flight", 0)
            if self._section.work.is_plain:
                # A worker reports between two calls.
                in_flight = max(in_flight, sum(bool(peer.out) for peer in self._peers))
            found["in_flight"] = min(in_flight, self._owners.unfinished)
            if "peak_in_flight" in found:
                # The peaks of the workers were at different times.
                found["peak_in_flight"] = min(found["peak_in_flight"], self._limit.highest)
            found["undelivered"] = found.get("undelivered", 0) + self._results.waiting
            found["limit"] = self._limit.limit
            found["limit_reason"] = self._limit.reason
            found["silent_workers"] = self._silence.silent()
        if stage.number in self._policies:
            for name, count in self._policies[stage.number].statistics().items():
                found[name] = found.get(name, 0) + count
        found["by_worker"] = [numbers for workers in by_place for numbers in workers]
        return found

    def _numbers_of_keys(self) -> dict[str, Any]:
        """The numbers of `group_by` for events in this process that its workers have not got."""
        hottest = self._owners.hottest(HOTTEST, self.run.now())
        return {
            "waiting": self._waiting,
            "peak": self._peak_waiting,
            "bound": self._bound,
            "hottest": hottest[0]["key"] if hottest else None,
            "hottest_waiting": hottest[0]["waiting"] if hottest else 0,
            "hottest_keys": hottest,
        }
