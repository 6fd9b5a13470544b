"""What a run promised, found in its log alone: the checker knows nothing of penstock."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.system.log import Entry

__all__ = ["Overlap", "Verdict", "check"]


class Overlap(NamedTuple):
    """Two at a time for one client: `second` was started at `at`, while `first` was under way.

    `was_frozen` when the process of the first was frozen at that moment: what it had under way
    then cannot be taken back.
    """

    client: str
    at: float
    first: tuple[str, int]
    second: tuple[str, int]
    was_frozen: bool


@dataclass
class Verdict:
    """Each event is (client, seq). The events of a client are numbered from 1."""

    lost: set[tuple[str, int]] = field(default_factory=set[tuple[str, int]])
    """Never arrived at the sink."""
    misordered: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    """Started before the event before it had arrived at the sink."""
    overlaps: list[Overlap] = field(default_factory=list[Overlap])
    starts: Counter[tuple[str, int]] = field(default_factory=Counter[tuple[str, int]])
    sunk: Counter[tuple[str, int]] = field(default_factory=Counter[tuple[str, int]])
    longest_silence: float = 0.0
    """Seconds between two starts, of whatever event."""

    @property
    def repeated(self) -> int:
        """Arrivals at the sink beyond the first of each event."""
        return self.sunk.total() - len(self.sunk)

    def overlaps_awake(self) -> list[Overlap]:
        """Those that a process took part in by its own doing, not by being frozen."""
        return [overlap for overlap in self.overlaps if not overlap.was_frozen]


def check(entries: Iterable[Entry], sent: Mapping[str, int]) -> Verdict:
    """The verdict on a run of which `sent` tells the last event's number of each client."""
    found = Verdict()
    arrived: defaultdict[str, int] = defaultdict(int)
    # Of each client the work under way, as (process, seq).
    working: defaultdict[str, list[tuple[str, int]]] = defaultdict(list)
    frozen: set[str] = set()
    last_start: float | None = None
    for at, process, what, client, seq in entries:
        match what:
            case "start":
                found.starts[client, seq] += 1
                if seq > arrived[client] + 1:
                    found.misordered.append((client, seq))
                found.overlaps += [
                    Overlap(client, at, other, (process, seq), other[0] in frozen)
                    for other in working[client]
                ]
                working[client].append((process, seq))
                if last_start is not None:
                    found.longest_silence = max(found.longest_silence, at - last_start)
                last_start = at
            case "end" | "cancel":
                working[client].remove((process, seq))
            case "sink":
                found.sunk[client, seq] += 1
                arrived[client] = max(arrived[client], seq)
            case "gone":
                frozen.discard(process)
                for under_way in working.values():
                    under_way[:] = [one for one in under_way if one[0] != process]
            case "frozen":
                frozen.add(process)
            case "woken":
                frozen.discard(process)
    found.lost = {
        (client, seq) for client, last in sent.items() for seq in range(1, last + 1)
    } - found.sunk.keys()
    return found
