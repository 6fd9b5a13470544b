"""Reports workers that have events and say nothing: they were stopped, or a call holds them up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from penstock.streams.protocol.blame import event_name, event_place
from penstock.streams.protocol.stage import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.runtime.timer import Timer
from penstock.streams.workers.owners import Peer

__all__ = ["SilenceWatch"]

# Seconds between two looks. A worker reports its numbers several times in this time.
_LOOK = 1.0

# Looks after which a silent worker is reported at first.
_PATIENCE = 4


class SilenceWatch:
    """Looks at all workers of a stage each second; `changed` is called with one that falls silent.

    Silences are counted in looks, so that none seems silent because this process was stopped.
    One that was silent for long calls is reported again only when it is so for twice as long.
    """

    def __init__(
        self,
        run: Run,
        info: StageInfo,
        working: StageInfo,
        peers: Sequence[Peer],
        changed: Callable[[Peer], None],
    ) -> None:
        self._run = run
        self._working = working
        self._peers = peers
        self._changed = changed
        self._patience = [_PATIENCE] * len(peers)
        self._timer = Timer(run, info, self._look)

    def begin(self) -> None:
        """Look from now on."""
        self._timer.set(_LOOK)

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
        have = "1 event" if len(peer.out) == 1 else f"{len(peer.out):,} events"
        self._run.errors.warn(
            f"{self._name(peer)} has said nothing for {peer.quiet * _LOOK:g} s: {why}. It has "
            f"{have}, the first of them {event_name(event)}. New keys go to the other workers"
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
        return f"worker process {peer.number + 1} of {len(self._peers)}"

    def silent(self) -> list[dict[str, Any]]:
        """Of each worker that is silent now, its number, the seconds, the events that it has, and
        the place of the first of them."""
        return [
            {
                "worker": peer.number + 1,
                "seconds": peer.quiet * _LOOK,
                "events": len(peer.out),
                "first": event_place(next(iter(peer.out.values()))[0]),
            }
            for peer in self._peers
            if peer.is_silent and peer.out
        ]
