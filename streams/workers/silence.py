"""Reports workers that have events and say nothing."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.streams.protocol.stage import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.runtime.timer import Timer
from penstock.streams.workers.owners import Peer

__all__ = ["SilenceWatch"]

# Seconds after which a worker that has events is reported if it has said nothing.
_SILENCE = 10.0


class SilenceWatch:
    """Looks at all workers of a stage at intervals; each silence is reported once."""

    def __init__(self, run: Run, info: StageInfo, peers: Sequence[Peer]) -> None:
        self._run = run
        self._peers = peers
        self._timer = Timer(run, info, self._look)

    def begin(self) -> None:
        """Look from now on."""
        self._timer.set(_SILENCE)

    def end(self) -> None:
        """Look no more."""
        self._timer.cancel()

    def _look(self) -> None:
        for peer in self._peers:
            is_silent = bool(peer.out) and peer.heard == peer.heard_before
            peer.silences = peer.silences + 1 if is_silent else 0
            if peer.silences == 1:
                self._run.errors.warn(
                    f"worker process {peer.number + 1} of {len(self._peers)} has said nothing for "
                    f"{_SILENCE:g} s: its handler blocks it, or it was stopped, or it still "
                    "imports the pipeline"
                )
            peer.heard_before = peer.heard
        self._timer.set(_SILENCE)
