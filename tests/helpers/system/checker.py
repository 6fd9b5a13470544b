"""Checks the promises of a run in its log alone, without any knowledge of penstock."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from tests.helpers.system.log import Entry

__all__ = ["Overlap", "Verdict", "check"]


class Overlap(NamedTuple):
    """Two at a time for one client: `second` was started at `at`, while `first` was in work.

    `was_frozen` if the process of the first had been frozen since it began it: its work cannot be
    withdrawn, and may continue when it wakes.
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
    """Started before every earlier event of the client had arrived at the sink or was given up."""
    overlaps: list[Overlap] = field(default_factory=list[Overlap])
    starts: Counter[tuple[str, int]] = field(default_factory=Counter[tuple[str, int]])
    sunk: Counter[tuple[str, int]] = field(default_factory=Counter[tuple[str, int]])
    longest_silence: float = 0.0
    """Seconds between two starts of any events."""

    @property
    def repeated(self) -> int:
        """Arrivals at the sink beyond the first of each event."""
        return self.sunk.total() - len(self.sunk)

    def overlaps_awake(self) -> list[Overlap]:
        """Those that were not caused by a frozen process."""
        return [overlap for overlap in self.overlaps if not overlap.was_frozen]


def check(
    entries: Sequence[Entry],
    sent: Mapping[str, int],
    given_up: Collection[tuple[str, int]] = (),
) -> Verdict:
    """The verdict on a run; `sent` has the number of each client's last event.

    An event that was `given_up` holds back the later ones of its client until its last start.
    """
    found = Verdict()
    # Of the events that were given up.
    starts_left = Counter(
        (client, seq)
        for _, _, what, client, seq in entries
        if what == "start" and (client, seq) in given_up
    )
    # Events that no longer hold back later ones of their client.
    over = set(given_up) - starts_left.keys()
    # The number of each client up to which everything is done.
    reached: defaultdict[str, int] = defaultdict(int)
    # The work in progress of each client: the process, the number, and when it began.
    working: defaultdict[str, list[tuple[str, int, float]]] = defaultdict(list)
    frozen: dict[str, float] = {}
    last_start: float | None = None
    for at, process, what, client, seq in entries:
        match what:
            case "start":
                found.starts[client, seq] += 1
                while (client, reached[client] + 1) in over:
                    reached[client] += 1
                if seq > reached[client] + 1:
                    found.misordered.append((client, seq))
                starts_left[client, seq] -= 1
                if starts_left[client, seq] == 0:
                    over.add((client, seq))
                found.overlaps += [
                    Overlap(
                        client, at, (other, number), (process, seq), frozen.get(other, -inf) > began
                    )
                    for other, number, began in working[client]
                ]
                working[client].append((process, seq, at))
                if last_start is not None:
                    found.longest_silence = max(found.longest_silence, at - last_start)
                last_start = at
            case "end" | "cancel":
                under_way = working[client]
                under_way.remove(next(one for one in under_way if one[:2] == (process, seq)))
            case "sink":
                found.sunk[client, seq] += 1
                over.add((client, seq))
            case "gone":
                for under_way in working.values():
                    under_way[:] = [one for one in under_way if one[0] != process]
            case "frozen":
                frozen[process] = at
            case "woken" | "there":
                continue
    found.lost = {
        (client, seq) for client, last in sent.items() for seq in range(1, last + 1)
    } - found.sunk.keys()
    return found
