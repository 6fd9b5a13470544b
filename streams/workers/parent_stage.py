"""The stage of the parent: deals events to workers, and sends their results on."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import Any

from penstock.streams.base.errors import BuildError
from penstock.streams.base.keys import Key
from penstock.streams.base.take_front import taken
from penstock.streams.execution.call import call_of, family_of, taken_family
from penstock.streams.execution.flushing_stage import FlushingStage
from penstock.streams.execution.options import HandlerOptions
from penstock.streams.failures.dead_letters import channel_to
from penstock.streams.failures.error_policy import ErrorPolicy
from penstock.streams.failures.policy import OverflowPolicy, sink_of
from penstock.streams.keyed.stage import STARVED
from penstock.streams.limits import Limiter
from penstock.streams.protocol.blame import identify, identify_in, note_end
from penstock.streams.protocol.event import (
    FAILED,
    FORGIVEN,
    RETURNED,
    Ending,
    Event,
    end_all,
    take_turns,
)
from penstock.streams.protocol.identity import identities, shown
from penstock.streams.protocol.stage import CANCELLED, CLOSED, COMPLETING, OPEN, Subscriber
from penstock.streams.protocol.stage import FAILED as STOPPED
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.runtime.timer import Timer
from penstock.streams.workers import messages
from penstock.streams.workers.key_owners import Dealt, Owner, Owners, Peer
from penstock.streams.workers.limit import CommonLimit
from penstock.streams.workers.numbers import stage_statistics
from penstock.streams.workers.placement import Section, unfit_key
from penstock.streams.workers.sending import QUIET, Sending
from penstock.streams.workers.supervisor import Supervisor, WorkerFactory

__all__ = ["ParentStage"]

# Events that a worker must have, unless it lacks slots for fewer, before a part of them goes to
# another one, and the seconds between two such moves.
_MUCH, _EVEN = 8, 0.01

_CLOSED_EARLY = (
    "a sink that a worker process had opened has closed before the end of the stream. A sink that "
    "ends the pipeline by itself cannot be opened in workers: leave its in_workers out"
)


class ParentStage(FlushingStage):
    """Has at most `bound` events and results that were not sent on, in all workers together.

    It completes when the stream above has and all events have ended. After an error the workers
    return what has not begun; on cancel they end, and all events are returned.
    """

    def __init__(
        self,
        downstream: Subscriber[Any],
        run: Run,
        info: StageInfo,
        section: Section,
        crew: WorkerFactory,
    ) -> None:
        work = section.work
        # What is tried again is so in the workers.
        options = HandlerOptions(ordered=work.ordered, window=work.window)
        faults = ErrorPolicy(work.on_error, run, section.working)
        super().__init__(downstream, run, info, options, faults)
        self._section = section
        bound = section.bound(run.limit)
        self._bound = 1 << 20 if bound is None else bound
        self._letters = {
            stage.number: (stage, channel_to(sink, run))
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
        self._limit = CommonLimit(section, run, self._owners, self.stop)
        ship = partial(self.within, self._ship)
        self._sending = Sending(
            *(run, info, section, self._bound - buffer, self._results, self._limit),
            *(ship, self._fail_for_good, self._lost),
        )
        self._supervisor = Supervisor(
            *(self, section, crew, self._limit, self._sending),
            *(self._received, self._fail_for_good, self._lost),
        )
        self._starved = Timer(run, info, partial(self.within, self._make_room))
        self._has_looked_at_key = section.by is None
        self._evened = 0.0
        if work.limiter is not None:
            run.add_tunable(section.working, self.retune)
        if key is not None:
            run.add_keyed(first, self.set_share)
        run.withdrawals.append(partial(self.within, self._withdraw))
        for stage in section.infos:
            run.add_stage(stage, partial(self.numbers_of, stage))

    def retune(self, limiter: Limiter) -> None:
        """Follow another limiter from the next event on; nothing is cancelled."""
        self._limit.retune(limiter)
        self._sending.soon()

    def set_share(self, share: int | None, policy: OverflowPolicy | None) -> None:
        """Replace the share of a key, or what becomes of more, for the events that come now."""
        self._overflow.set(share, policy, self._owners.backlogs)

    def _withdrawn(self, is_gone: Callable[[Event[Any]], bool]) -> list[Event[Any]]:
        for peer in self._peers:
            if any(is_gone(event) for event, _ in peer.out.values()):
                peer.recall()
        gone = super()._withdrawn(is_gone) + self._owners.withdraw(is_gone)
        self._supervisor.acquit(gone)
        return gone

    # Demand.

    def request(self, n: int, /) -> None:
        if not self._supervisor.is_open and self.state < CLOSED:
            self._supervisor.begin()
        super().request(n)

    def _proceed(self) -> None:
        self._settle()
        while self._inbox:
            self._deal()
        if any(self._sending.makes_room(peer) for peer in self._peers):
            self._sending.soon()
        error, self._overflow.error = self._overflow.error, None
        if error is not None:
            self.stop(error)
        if self.state is not OPEN or not self._supervisor.is_open:
            return
        room = self._free
        is_first = not (self.asked or self._owners.unfinished)
        if room >= self._least_asked or (room > 0 and is_first):
            self.ask(room)
        # Unless a worker that answers could have more calls than it has keys, or events.
        if self.asked or not any(map(self._limit.has_spare, self._owners.ready)):
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

    def on_events(self, events: list[Event[Any]], /) -> None:
        super().on_events(events)
        # Also while they are requested: a source may then leave more of a key where it is.
        while self._inbox:
            self._deal()

    def _deal(self) -> None:
        """Give workers the events that need not wait for their turns."""
        if not self._has_looked_at_key:
            self._has_looked_at_key = True
            if (error := unfit_key(self._section, self._inbox[0].value)) is not None:
                self.stop(error)
                return
        events = taken(self._inbox, len(self._inbox))
        self._results.begin(events)
        turns = {event: event.turn for event in events} if self._siblings.at_work else {}
        for event in self._owners.deal(events):
            self._results.end(event)
            # It has ended with its share of its turn.
            if (turn := turns.get(event)) is not None:
                self._bring_next([turn])
        self._sending.soon()

    def keys_of(self, events: list[Event[Any]], /) -> list[Any]:
        """The keys by which the events are dealt."""
        return self._owners.keys_of(events)

    def _ship(self) -> None:
        """Send to each worker the events that wait for it, and room for more results."""
        if self.state < STOPPED:
            self._even_out()
            for peer in self._peers:
                if peer.is_completed and peer.link is None and peer.ready:
                    self._supervisor.start_again(peer)
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
        if all(peer.is_told for peer in self._peers) or self._waiting:
            return
        if self._owners.has_waiting or any(peer.is_recalled for peer in self._peers):
            return
        for peer in self._peers:
            if not peer.is_told:
                peer.is_told = True
                peer.send(messages.Complete())

    def _lost(self, dealt: list[Dealt]) -> None:
        """Return events that no worker has any more."""
        self._owners.end([owner for _, owner in dealt])
        events = [event for event, _ in dealt]
        self._supervisor.acquit(events)
        self._lose(events)

    # Outcomes.

    def _received(self, peer: Peer, message: Any) -> None:
        """A message of a worker."""
        self._supervisor.heard(peer)
        if self.state < CLOSED:
            self.within(self._handle, peer, message)
        elif isinstance(message, messages.Numbers):
            peer.numbers = message.stages
        elif isinstance(message, messages.Warn):
            self._warn(peer, message)
        elif isinstance(message, messages.Stopping):
            self._supervisor.failed(message.sent.raised())
        elif isinstance(message, messages.Completed):
            peer.is_completed = True

    def _warn(self, peer: Peer, message: messages.Warn) -> None:
        text, fields = message.text, message.fields or {}
        if message.number in peer.out:
            event, _ = peer.out[message.number]
            text = identify_in(text, event)
            fields["identity"] = shown(identities(event))
        self.run.errors.warn(text, **fields)

    def _stopping(self, peer: Peer, message: messages.Stopping) -> None:
        error = message.sent.raised()
        for number in message.numbers:
            identify(error, peer.out[number][0])
        self._supervisor.failed(error)

    def _handle(self, peer: Peer, message: Any) -> None:
        match message:
            case messages.Ended():
                self._take_results(peer, message)
            case messages.Completions():
                self._limit.completed(peer, message.ends)
                return
            case messages.Parts():
                self._take_parts(peer, message)
            case messages.Over():
                self._take_endings(peer, message)
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
                self._supervisor.move(peer)
            case messages.Warn():
                self._warn(peer, message)
            case messages.Completed():
                peer.is_completed = True
                if not peer.is_told and self.state < STOPPED:
                    self.stop(BuildError(_CLOSED_EARLY))
            case _:
                raise TypeError(f"unknown message: {message!r}")
        if peer.ready and not (peer.is_active or peer.is_recalled):
            self._supervisor.move(peer)
        self._sending.soon()

    def _pop(self, peer: Peer, numbers: list[int]) -> list[Event[Any]]:
        """Events have ended in their worker."""
        dealt = list(map(peer.out.pop, numbers))
        self._owners.end([owner for _, owner in dealt])
        events = [event for event, _ in dealt]
        self._supervisor.acquit(events)
        return events

    def _take_results(self, peer: Peer, message: messages.Ended) -> None:
        peer.false_starts = 0
        numbers, results, starts, ends = message
        events = self._pop(peer, numbers)
        for event, result, started, ended in zip(events, results, starts, ends, strict=True):
            event.value = result
            event.started = started
            event.ended = ended
        peer.room += len(events)
        self._ended += events

    def _take_parts(self, peer: Peer, message: messages.Parts) -> None:
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
        stage, letters = self._letters[message.stage]
        letters.send(part, message.error, str(stage), message.attempts)

    def _unsendable(self, peer: Peer, message: messages.Unsendable) -> None:
        event, _ = peer.out[message.number]
        part = family_of(event).child(event.value)
        if not self._faults.survives(part, message.error):
            self.stop(message.error)

    def _take_endings(self, peer: Peer, message: messages.Over) -> None:
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
        turns = take_turns(events)
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

    def _fail_for_good(
        self, event: Event[Any], owner: Owner, error: Exception, attempts: int = 1
    ) -> None:
        """An event has failed outside its handler, for good."""
        self._owners.end((owner,))
        # Before the last one.
        call_of(event).attempts = attempts - 1
        self._failed(event, error)
        self._settle()

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
            fullest.recall()

    # The end.

    def end(self) -> None:
        """No more events come from above."""
        super().end()
        if self._section.sinks:
            self._sending.soon()

    def stop(self, error: BaseException) -> None:
        """Begin nothing more; calls in flight may finish before the error passes on."""
        self._supervisor.look_no_more()
        super().stop(error)
        self._drain()

    def give_back_unstarted(self) -> None:
        super().give_back_unstarted()
        self._starved.cancel()
        for events in self._owners.close():
            self._give_back(events)
        for peer in self._peers:
            peer.is_recalled = peer.is_told = True
            peer.send(messages.Stop())

    def is_busy(self) -> bool:
        return bool(self._owners.unfinished) or super().is_busy()

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
        super().release()
        self._give_back(left)
        for events in self._owners.close():
            self._give_back(events)

    def numbers_of(self, stage: StageInfo) -> dict[str, Any]:
        """The numbers of a stage in all workers together, and of each by itself."""
        return stage_statistics(
            *(stage, self._section, self._bound, self._results, self._limit),
            *(self._supervisor.silent(), self._faults, self.run.now()),
        )
