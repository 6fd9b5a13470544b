"""The supervision of a stage's workers: they are started, and replaced when they end or fail."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol, runtime_checkable

from penstock.streams.base.errors import WorkerLost
from penstock.streams.protocol.event import Event
from penstock.streams.protocol.stage import CLOSED, FAILED
from penstock.streams.stages.finishing_stage import FinishingStage
from penstock.streams.workers import messages
from penstock.streams.workers.key_owners import Dealt, Owner, Owners, Peer
from penstock.streams.workers.limit import CommonLimit
from penstock.streams.workers.messages import Link
from penstock.streams.workers.numbers import of_ended
from penstock.streams.workers.placement import Section
from penstock.streams.workers.sending import Sending
from penstock.streams.workers.silence import SilenceWatch

__all__ = ["Supervisor", "WorkerFactory"]

# An event whose workers have ended so often, it alone being there the last times, is at fault.
_KILLS = 3

# A worker that ends so often before it has reported anything will not get better.
_FALSE_STARTS = 3


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
    """Keeps a worker running for each of the `peers` of a stage, until that has ended.

    Which event has ended a worker needs no `Trial`: the parent survives and knows what the worker
    had. So `kills` has a count for each of these events, and one worker does them one at a time.

    `received` is called with each message, `give_up` with an event that is at fault, its error and
    attempts, `give_back` with those that a worker had when nothing begins any more.
    """

    def __init__(
        self,
        stage: FinishingStage,
        section: Section,
        crew: WorkerFactory,
        peers: Sequence[Peer],
        owners: Owners,
        limit: CommonLimit,
        sending: Sending,
        kills: dict[Event[Any], int],
        received: Callable[[Peer, Any], None],
        give_up: Callable[[Event[Any], Owner, Exception, int], None],
        give_back: Callable[[list[Dealt]], None],
    ) -> None:
        self._stage = stage
        self._run = run = stage.run
        self._section = section
        self._crew = crew
        self._peers = peers
        self._owners = owners
        self._limit = limit
        self._sending = sending
        self._kills = kills
        self._received = received
        self._give_up = give_up
        self._give_back = give_back
        self.is_open = False
        """Whether workers were started."""
        silent = partial(stage.within, self._fell_silent)
        self.silence = SilenceWatch(run, stage.info, section.working, peers, silent, _KILLS)
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
            self.silence.begin()

    def _start(self, peer: Peer) -> None:
        stage = self._stage
        peer.is_recalled = peer.is_completed = peer.is_told = False
        peer.heard = 0
        self.silence.started(peer)
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
            self.silence.answered(peer)
            self._limit.choose_ready()
        peer.quiet = 0

    def _fell_silent(self, peer: Peer) -> None:
        """Let others have the events that a worker has not got yet, and new keys."""
        self._limit.choose_ready()
        if self._stage.state < FAILED:
            # It reads this before it begins more.
            peer.recall()
            self.move(peer)
            self._sending.soon()

    # Events that are suspected.

    def move(self, peer: Peer) -> None:
        """Deal anew what waits for a worker."""
        self._owners.move(peer)
        if self._kills:
            for each in self._peers:
                self._count_suspects(each)
            self._limit.choose_ready()

    def _count_suspects(self, peer: Peer) -> None:
        peer.suspects = sum(event in self._kills for event in self._owners.of(peer))

    def acquit(self, peer: Peer, events: Sequence[Event[Any]]) -> None:
        """A worker has survived these events."""
        for event in events if self._kills else ():
            if self._kills.pop(event, 0) and peer.suspects:
                peer.suspects -= 1
                if not peer.suspects:
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
            peer.suspects = max(0, peer.suspects - 1)
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
        self._count_suspects(peer)
        peer.false_starts += not has_begun
        if peer.false_starts >= _FALSE_STARTS:
            stage.stop(WorkerLost(f"a worker process ends before it has begun anything, by {how}"))
            return
        self.start_again(peer)
        follows = "; another one is started"
        if again and has_begun:
            one = len(again) == 1
            counted = "1 event that it had is" if one else f"{len(again):,} events that it had are"
            follows = f"; {counted} worked on again{'' if one else ', one at a time'}"
        # If none can be started, the error of that ends the run.
        self._run.errors.warn(
            f"a worker process ended by {how}{follows if stage.state < FAILED else ''}"
        )
        if not peer.is_active:
            self.move(peer)
        self._sending.soon()

    # The end.

    def failed_late(self, error: BaseException) -> None:
        """An error of a worker after the end of the stage, such as one of its clean-up."""
        known = self._late if self._stage.error is None else [self._stage.error, *self._late]
        if not any(say_the_same(one, error) for one in known):
            self._late.append(error)

    async def _close(self) -> None:
        self._sending.close()
        if self.is_open:
            self.silence.end()
            await self._crew.close()
        for error in self._late[1:]:
            self._run.late_error(error)
        if self._late:
            raise self._late[0]


def say_the_same(error: BaseException, other: BaseException) -> bool:
    """Whether two errors, such as those of two workers that fail alike, are one to a reader."""
    return type(error) is type(other) and str(error) == str(other)
