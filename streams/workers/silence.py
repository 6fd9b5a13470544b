"""Reports workers that have events and say nothing: they were stopped, or a call holds them up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from penstock.streams.protocol.blame import event_name, event_place
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.runtime.timer import Timer
from penstock.streams.workers.key_owners import Peer

__all__ = ["SilenceWatch"]

# Seconds between two looks. A worker reports its numbers several times in this time.
_LOOK = 1.0

# Looks after which a silent worker is reported at first.
_PATIENCE = 4


class SilenceWatch:
    """Looks at all workers of a stage each second; `changed` is called with one that falls silent.

    Silences are counted in looks, so that none seems silent because this process was stopped.
    One that was silent for long calls is reported again only when it is so for twice as long.
    `kills` is how many workers an event may end until it fails.
    """

    def __init__(
        self,
        run: Run,
        info: StageInfo,
        working: StageInfo,
        peers: Sequence[Peer],
        changed: Callable[[Peer], None],
        kills: int,
    ) -> None:
        self._run = run
        self._working = working
        self._peers = peers
        self._changed = changed
        self._kills = kills
        self._patience = [_PATIENCE] * len(peers)
        self._timer = Timer(run, info, self._look)

    def begin(self) -> None:
        """Look from now on."""
        self._timer.set(_LOOK)

    def started(self, peer: Peer) -> None:
        """A worker process begins, which has never been silent."""
        peer.quiet = 0
        self._patience[peer.number] = _PATIENCE

    def end(self) -> None:
        """Look no more."""
        self._timer.cancel()

    def _look(self) -> None:
        for peer in self._peers:
            peer.quiet = peer.quiet + 1 if peer.out else 0
            if peer.quiet >= self._patience[peer.number] and not peer.is_silent:
                peer.is_silent = True
                self._report(peer)
                self._changed(peer)
        self._timer.set(_LOOK)

    def _report(self, peer: Peer) -> None:
        event = next(iter(peer.out.values()))[0]
        why = (
            f"it was stopped, or a call of {self._working} does not let go of the interpreter"
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
            f"events to another process, and an event that has ended {self._kills} of them fails "
            f"with WorkerLost, as on_error of {self._working} says"
        )

    def answered(self, peer: Peer) -> None:
        """A worker that was silent has said something, or ended."""
        if peer.link is not None:
            seconds = peer.quiet * _LOOK
            self._run.errors.warn(f"{self._name(peer)} goes on after {seconds:g} s")
        self._patience[peer.number] = 2 * peer.quiet
        peer.is_silent = False
        peer.quiet = 0

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


def _pid(peer: Peer) -> int | None:
    return None if peer.link is None else peer.link.pid
