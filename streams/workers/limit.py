"""The limit of the working stage: the parent owns it, and lends its slots to the workers."""

from __future__ import annotations

from collections.abc import Callable

from penstock.streams.base.errors import add_note
from penstock.streams.execution.limit_control import LimitControl
from penstock.streams.limits import Completion, Fixed, Limiter
from penstock.streams.runtime.context import Run
from penstock.streams.workers.key_owners import Owners, Peer
from penstock.streams.workers.messages import Grant
from penstock.streams.workers.placement import Section
from penstock.streams.workers.slot_shares import Lending

__all__ = ["CommonLimit"]


class CommonLimit:
    """One limit for the calls of all workers together, divided among them by need.

    A limit below the number of workers leaves some of them without slots: each that had some is
    recalled. `failed` is called if the limiter raises.
    """

    def __init__(
        self,
        section: Section,
        run: Run,
        owners: Owners,
        failed: Callable[[BaseException], None],
    ) -> None:
        self._section = section
        self._run = run
        self.owners = owners
        self._peers = owners.peers
        self._failed = failed
        work = section.work
        self._follow(Fixed(work.parallel) if work.limiter is None else work.limiter(run))
        self._lending = Lending(self.limit, len(self._peers))
        self.highest = self.limit
        """The highest limit so far."""
        # How many workers may have calls; whether each gets its slots once, as a stage needs that
        # has a number of calls and no limiter.
        self._most = 0
        self._is_dealt_once = work.limiter is None

    def _follow(self, limiter: Limiter) -> None:
        work = self._section.work
        watch = self._run.watch_of_limit(self._section.working)
        self._control = LimitControl(
            limiter, self._broke, None, work.on_limit_change, watch, moved=self._assigned
        )
        self._learns = self._control.learns
        # A plain handler teaches a limiter nothing, unless it turns out to return awaitables.
        self._is_free = work.is_plain and self._learns

    @property
    def limit(self) -> int:
        """How many calls may be in flight in all workers together."""
        limit = self._control.limit
        return max(limit, len(self._peers)) if self._is_free else limit

    @property
    def active(self) -> int:
        """How many workers have calls, at least 1."""
        return max(1, self._most)

    @property
    def reason(self) -> str:
        """Why the limit is what it is."""
        return self._control.reason

    def _broke(self, error: Exception, what: str) -> None:
        self._learns = False
        add_note(error, f"in the {what} of {self._section.working}")
        self._failed(error)

    def retune(self, limiter: Limiter) -> None:
        """Follow another limiter."""
        old = self._control.limit
        self._follow(limiter)
        self._control.retuned(old)
        self.lend(changed=True)

    def _assigned(self) -> None:
        if self._control.follow():
            self.lend(changed=True)

    def completed(self, peer: Peer, ends: list[Completion]) -> None:
        """Calls have ended in a worker."""
        if not self._learns or not ends:
            return
        self._is_free = False
        others = sum(
            min(self.slots(other), self.owners.need(other))
            for other in self._peers
            if other is not peer
        )
        self._control.completed(
            [(now, started, level + others, outcome) for now, started, level, outcome in ends]
        )
        if self._control.follow():
            self.lend()

    def slots(self, peer: Peer) -> int:
        """How many slots a worker was granted."""
        return self._lending.granted[peer.number]

    def is_short(self, peer: Peer) -> bool:
        """Whether a worker could use more slots than it has."""
        return self.owners.need(peer) > self.slots(peer)

    def has_spare(self, peer: Peer) -> bool:
        """Whether a worker has more slots than it could use now."""
        return self.owners.need(peer) < self.slots(peer)

    def lend(self, *, changed: bool = False) -> None:
        """Divide the limit among the workers; if it has `changed`, they learn of it in any case."""
        lending = self._lending
        lending.limit = self.limit
        self.highest = max(self.highest, lending.limit)
        most = min(len(self._peers), lending.limit)
        if most != self._most:
            self._activate(most)
        for peer in self._peers[most:]:
            if not peer.out:
                lending.lost(peer.number)
        if self._is_dealt_once and not changed:
            return
        told = lending.balance([self.owners.need(peer) for peer in self._peers], most)
        for number in range(most) if changed else told:
            # One whose slots others still have in use gets them when these are free.
            if number < most and self.slots(self._peers[number]):
                self._grant(self._peers[number])

    def _activate(self, most: int) -> None:
        """Let so many workers have calls; they get the events that others have not begun."""
        self._most = most
        for peer in self._peers:
            was_active, peer.is_active = peer.is_active, peer.number < most
            if was_active and not peer.is_active:
                peer.recall()
        self.choose_ready()

    def choose_ready(self) -> None:
        """New keys go to the active workers, but not to one that is silent, nor while there are
        `suspects` in it."""
        active = [peer for peer in self._peers if peer.is_active]
        active = [peer for peer in active if not peer.is_silent] or active
        self.owners.ready = [peer for peer in active if not peer.suspects] or active

    def confirmed(self, peer: Peer, grant: int) -> None:
        """A worker has no more slots in use than this grant has, if it is the last one."""
        if grant == peer.grants:
            self._lending.confirmed(peer.number)

    def lost(self, peer: Peer) -> None:
        """A worker has ended, and all its calls with it."""
        if not self._is_dealt_once:
            self._lending.lost(peer.number)

    def replaced(self, peer: Peer) -> None:
        """Another worker was started in its place."""
        if self._is_dealt_once and peer.is_active:
            # The others keep theirs, so that this one has the slots of the one before.
            self._grant(peer)

    def _grant(self, peer: Peer) -> None:
        peer.grants += 1
        peer.send(Grant(peer.grants, self.slots(peer), self._learns))
