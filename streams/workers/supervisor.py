"""The supervision of a stage's workers: they are started, and replaced when they end or fail."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol, runtime_checkable

from penstock.streams.base.errors import WorkerLost, counted
from penstock.streams.execution.flushing_stage import FlushingStage
from penstock.streams.protocol.blame import event_name, event_place
from penstock.streams.protocol.event import Event
from penstock.streams.protocol.stage import CLOSED, FAILED
from penstock.streams.runtime.timer import Timer
from penstock.streams.workers import messages
from penstock.streams.workers.key_owners import Dealt, Owner, Peer
from penstock.streams.workers.limit import CommonLimit
from penstock.streams.workers.messages import Link
from penstock.streams.workers.numbers import of_ended
from penstock.streams.workers.placement import Section
from penstock.streams.workers.sending import Sending

__all__ = ["Supervisor", "WorkerFactory"]

# An event whose workers have ended so often, it alone being there the last times, is at fault.
_KILLS = 3

# A worker that ends so often before it has reported anything will not get better.
_FALSE_STARTS = 3

# Seconds between two looks, a worker reports its numbers several times in this time, and looks
# after which a silent worker is reported at first.
_LOOK, _PATIENCE = 1.0, 4


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


class Supervisor:
    """Keeps a worker running for each peer of a stage, until that has ended, and looks at all of
    them each second.

    Silences are counted in looks, so that none seems silent because this process was stopped. One
    that was silent for long calls is reported again only when it is so for twice as long.

    Which event has ended a worker needs no `Trial`: the parent survives and knows what the worker
    had. So there is a count for each of these events, and one worker does them one at a time.

    `received` is called with each message, `give_up` with an event that is at fault, its error and
    attempts, `give_back` with those that a worker had when nothing begins any more.
    """

    def __init__(
        self,
        stage: FlushingStage,
        section: Section,
        crew: WorkerFactory,
        limit: CommonLimit,
        sending: Sending,
        received: Callable[[Peer, Any], None],
        give_up: Callable[[Event[Any], Owner, Exception, int], None],
        give_back: Callable[[list[Dealt]], None],
    ) -> None:
        self._stage = stage
        self._run = run = stage.run
        self._section = section
        self._crew = crew
        self._limit = limit
        self._owners = limit.owners
        self._peers = limit.owners.peers
        self._sending = sending
        self._kills = sending.suspects
        self._received = received
        self._give_up = give_up
        self._give_back = give_back
        self.is_open = False
        """Whether workers were started."""
        self._patience = [_PATIENCE] * len(self._peers)
        self._timer = Timer(run, stage.info, self._look)
        # Errors of workers that have closed what their handler used.
        self._late: list[BaseException] = []
        run.on_close(self._close)

    # Beginnings.

    def begin(self) -> None:
        """Start all workers."""
        self.is_open = True
        for peer in self._peers:
            if self._stage.state < FAILED:
                self._start(peer)
        self._limit.lend(changed=True)
        if self._stage.state < FAILED:
            self._timer.set(_LOOK)

    def _start(self, peer: Peer) -> None:
        stage = self._stage
        peer.is_recalled = peer.is_completed = peer.is_told = False
        peer.heard = peer.quiet = 0
        self._patience[peer.number] = _PATIENCE
        call = partial(self._run.call, stage.info)
        received, lost = partial(call, self._received, peer), partial(call, self._lost, peer)
        try:
            peer.link = self._crew.open(
                peer.number, self._section, self._sending.room, received, lost
            )
        except OSError as error:
            stage.stop(WorkerLost(f"a worker process cannot be started: {error}"))
        else:
            if any(observer.counts for observer in self._run.observers):
                peer.send(messages.Counted())
            if self._run.tracing is not None:
                peer.send(messages.Traced(*self._run.tracing.options))

    def start_again(self, peer: Peer) -> None:
        """Start another worker in the place of one that has ended."""
        self._limit.lost(peer)
        self._start(peer)
        self._limit.replaced(peer)

    # Signs of life.

    def heard(self, peer: Peer) -> None:
        """A message has come from a worker."""
        peer.heard += 1
        peer.is_heard = True
        if peer.quiet:
            self._answered(peer)

    def _answered(self, peer: Peer) -> None:
        """A worker says something, or has ended, after a while."""
        if peer.is_silent:
            if peer.link is not None:
                seconds = peer.quiet * _LOOK
                self._run.errors.warn(f"{self._name(peer)} goes on after {seconds:g} s")
            self._patience[peer.number] = 2 * peer.quiet
            peer.is_silent = False
            self._limit.choose_ready()
        peer.quiet = 0

    def _look(self) -> None:
        for peer in self._peers:
            peer.quiet = peer.quiet + 1 if peer.out else 0
            if peer.quiet >= self._patience[peer.number] and not peer.is_silent:
                peer.is_silent = True
                self._report(peer)
                self._stage.within(self._fell_silent, peer)
        self._timer.set(_LOOK)

    def _fell_silent(self, peer: Peer) -> None:
        """Let others have the events that a worker has not got yet, and new keys."""
        self._limit.choose_ready()
        if self._stage.state < FAILED:
            # It reads this before it begins more.
            peer.recall()
            self.move(peer)
            self._sending.soon()

    def _report(self, peer: Peer) -> None:
        event, working = next(iter(peer.out.values()))[0], self._section.working
        why = (
            f"it was stopped, or a call of {working} does not let go of the interpreter"
            if peer.heard
            else "it was stopped, or still imports the pipeline"
        )
        # The worker cannot say now which of them it has begun.
        held = (
            f"by its only event, {event_name(event)}"
            if len(peer.out) == 1
            else f"perhaps by one of its {len(peer.out):,} events, of which the first that it was "
            f"sent is {event_name(event)}"
        )
        pid = _pid(peer)
        kill = "the end of this process" if pid is None else f"kill -9 {pid}"
        self._run.errors.warn(
            f"{self._name(peer)} has said nothing for {peer.quiet * _LOOK:g} s: {why}. It is held "
            f"up {held}. New keys go to the other workers. If it does not go on, {kill} gives its "
            f"events to another process, and an event that has ended {_KILLS} of them fails "
            f"with WorkerLost, as on_error of {working} says"
        )

    def _name(self, peer: Peer) -> str:
        pid = _pid(peer)
        known = "" if pid is None else f" (pid {pid})"
        return f"worker process {peer.number + 1} of {len(self._peers)}{known}"

    def silent(self) -> list[dict[str, Any]]:
        """The workers that are silent now: for each its number, process id if any, seconds, count
        of events, and the place of the first."""
        return [
            {
                "worker": peer.number + 1,
                "pid": _pid(peer),
                "seconds": peer.quiet * _LOOK,
                "events": len(peer.out),
                "first": event_place(next(iter(peer.out.values()))[0]),
            }
            for peer in self._peers
            if peer.is_silent and peer.out
        ]

    # Events that are suspected.

    def move(self, peer: Peer) -> None:
        """Deal anew what waits for a worker."""
        self._owners.move(peer)
        if self._kills:
            self._count_suspects()

    def acquit(self, events: Sequence[Event[Any]]) -> None:
        """No worker ends with these events any more: one has survived them, or none gets them."""
        known = len(self._kills)
        for event in events if known else ():
            self._kills.pop(event, None)
        if len(self._kills) < known:
            self._count_suspects()

    def _count_suspects(self) -> None:
        for peer in self._peers:
            peer.suspects = sum(event in self._kills for event in self._owners.of(peer))
        self._limit.choose_ready()

    # Workers that end.

    def _lost(self, peer: Peer, how: str) -> None:
        """A worker has ended before it was asked to."""
        peer.link = None
        self._answered(peer)
        if self._stage.state >= CLOSED:
            return
        peer.room = 0
        if peer.numbers:
            peer.before.append(of_ended(peer.numbers))
            peer.numbers = {}
        if peer.is_completed:
            # Events may wait for it, since another one has ended.
            self._sending.soon()
        else:
            self._stage.within(self._replace, peer, how)

    def _replace(self, peer: Peer, how: str) -> None:
        stage, kills = self._stage, self._kills
        # A worker answers its first grant, which comes before its first event.
        has_begun = bool(peer.heard and peer.out)
        alone = has_begun and len(peer.out) == 1
        again = list(peer.out.values())
        peer.out.clear()
        for event, _ in again if has_begun else ():
            # Among others it may be as innocent as these, however often.
            kills[event] = kills.get(event, 0) + 1 if alone else max(kills.get(event, 0), 1)
        if alone and kills[again[0][0]] >= _KILLS:
            ((event, owner),) = again
            again = []
            del kills[event]
            error = WorkerLost(
                f"its worker process ended {_KILLS} times while it worked on this event, the last "
                f"time by {how}"
            )
            self._give_up(event, owner, error, _KILLS)
        if stage.state >= FAILED:
            # Nothing begins any more.
            self._give_back(again)
            return
        peer.put_back(again)
        self._count_suspects()
        peer.false_starts += not has_begun
        if peer.false_starts >= _FALSE_STARTS:
            stage.stop(WorkerLost(f"a worker process ends before it has begun anything, by {how}"))
            return
        self.start_again(peer)
        follows = "; another one is started"
        if again and has_begun:
            one = len(again) == 1
            events = counted(len(again), "event that it had is", "events that it had are")
            follows = f"; {events} worked on again{'' if one else ', one at a time'}"
        # If none can be started, the error of that ends the run.
        self._run.errors.warn(
            f"a worker process ended by {how}{follows if stage.state < FAILED else ''}"
        )
        if not peer.is_active:
            self.move(peer)
        self._sending.soon()

    # The end.

    def failed(self, error: BaseException) -> None:
        """A worker has failed, or, after the end of the stage, its clean-up."""
        known = self._late if self._stage.error is None else [self._stage.error, *self._late]
        # All may fail in the same way, as where their sinks cannot connect.
        if any(_say_the_same(one, error) for one in known):
            return
        if self._stage.state < CLOSED:
            self._stage.stop(error)
        else:
            self._late.append(error)

    def look_no_more(self) -> None:
        """A worker that has reported its own error may have nothing more to say."""
        self._timer.cancel()

    async def _close(self) -> None:
        self._sending.close()
        if self.is_open:
            self.look_no_more()
            await self._crew.close()
        for error in self._late[1:]:
            self._run.late_error(error)
        if self._late:
            raise self._late[0]


def _pid(peer: Peer) -> int | None:
    return None if peer.link is None else peer.link.pid


def _say_the_same(error: BaseException, other: BaseException) -> bool:
    return type(error) is type(other) and str(error) == str(other)
