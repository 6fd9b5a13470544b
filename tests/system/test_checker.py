"""The checker of the fault runs finds faults planted in a log, and none in a clean one."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.system.checker import check
from tests.helpers.system.log import Entry, Log, What, entries_of

CLIENTS, EVENTS = 5, 20
SENT = {f"client {number}": EVENTS for number in range(CLIENTS)}


def clean(seed: int) -> list[Entry]:
    """A run of three processes in which each client has one at a time, in order."""
    random_ = random.Random(seed)
    entries: list[Entry] = []
    for client in SENT:
        at = random_.random()
        for seq in range(1, EVENTS + 1):
            process = random_.choice("abc")
            for what in ("start", "end", "sink"):
                at += random_.expovariate(10)
                entries.append(Entry(at, process, what, client, seq))
    return sorted(entries)


def place_of(entries: list[Entry], what: What, client: str, seq: int) -> int:
    return next(
        place
        for place, entry in enumerate(entries)
        if (entry.what, entry.client, entry.seq) == (what, client, seq)
    )


def drawn(seed: int) -> tuple[str, int]:
    random_ = random.Random(seed)
    return random_.choice(list(SENT)), random_.randrange(2, EVENTS)


seeds = pytest.mark.parametrize("seed", range(20))


@seeds
def test_a_clean_run_has_no_faults(seed: int) -> None:
    verdict = check(clean(seed), SENT)
    assert (verdict.lost, verdict.misordered, verdict.overlaps) == (set(), [], [])
    assert verdict.repeated == 0
    assert verdict.sunk.total() == CLIENTS * EVENTS


@seeds
def test_an_event_that_never_arrived_is_lost(seed: int) -> None:
    entries, event = clean(seed), drawn(seed)
    del entries[place_of(entries, "sink", *event)]
    assert check(entries, SENT).lost == {event}


def test_an_event_that_was_never_started_is_lost() -> None:
    entries = [one for one in clean(0) if (one.client, one.seq) != ("client 1", EVENTS)]
    assert check(entries, SENT).lost == {("client 1", EVENTS)}


@seeds
def test_an_event_that_starts_before_the_one_before_it_arrived_is_misordered(seed: int) -> None:
    entries, (client, seq) = clean(seed), drawn(seed)
    numbers = {seq: seq + 1, seq + 1: seq}
    swapped = [
        one._replace(seq=numbers.get(one.seq, one.seq)) if one.client == client else one
        for one in entries
    ]
    assert check(swapped, SENT).misordered == [(client, seq + 1)]


@seeds
def test_an_event_that_starts_between_the_attempts_of_one_that_is_given_up_is_misordered(
    seed: int,
) -> None:
    entries, (client, seq) = clean(seed), drawn(seed)
    del entries[place_of(entries, "sink", client, seq)]
    assert check(entries, SENT, {(client, seq)}).misordered == []
    attempt = [place_of(entries, what, client, seq + 1) + 1 for what in ("end", "start")]
    for place, what in zip(attempt, ("end", "start"), strict=True):
        # Within the next one, so that this is the last attempt.
        entries.insert(place, entries[place - 1]._replace(what=what, seq=seq))
    assert check(entries, SENT, {(client, seq)}).misordered == [(client, seq + 1)]


def test_an_event_that_starts_while_any_earlier_one_is_open_is_misordered() -> None:
    entries = [
        entry
        for at, seq in enumerate([1, 3, 4, 2, 3, 5])
        for entry in (
            Entry(at, "a", "start", "x", seq),
            Entry(at + 0.1, "a", "end", "x", seq),
            Entry(at + 0.2, "a", "sink", "x", seq),
        )
    ]
    assert check(entries, {"x": 5}).misordered == [("x", 3), ("x", 4)]


def test_a_repetition_of_an_event_after_later_ones_is_not_misordered() -> None:
    entries = clean(0)
    attempt = [one for one in entries if (one.client, one.seq) == ("client 1", 3)]
    last = entries[-1].at
    entries += [one._replace(at=last + 1 + n) for n, one in enumerate(attempt)]
    assert check(entries, SENT).misordered == []


@seeds
def test_two_at_a_time_for_a_client_overlap(seed: int) -> None:
    entries, (client, seq) = clean(seed), drawn(seed)
    place = place_of(entries, "end", client, seq)
    entries.insert(place, entries[place]._replace(process="zombie", what="start"))
    entries.insert(place + 2, entries[place]._replace(process="zombie", what="end"))
    (overlap,) = check(entries, SENT).overlaps
    assert (overlap.client, overlap.second, overlap.was_frozen) == (client, ("zombie", seq), False)
    assert overlap.first[1] == seq


def test_an_event_that_one_process_works_on_twice_at_a_time_overlaps_itself() -> None:
    entries = [
        Entry(1, "a", "start", "x", 1),
        Entry(2, "a", "start", "x", 1),
        Entry(3, "a", "end", "x", 1),
        Entry(4, "a", "end", "x", 1),
        Entry(5, "a", "sink", "x", 1),
    ]
    (overlap,) = check(entries, {"x": 1}).overlaps
    assert overlap.first == overlap.second == ("a", 1)


@pytest.mark.parametrize("end", ["cancel", "gone"])
def test_work_ends_when_it_is_cancelled_or_its_process_is_gone(end: What) -> None:
    entries = [
        Entry(1, "a", "start", "x", 1),
        Entry(2, "a", end, "" if end == "gone" else "x", 0 if end == "gone" else 1),
        Entry(3, "b", "start", "x", 1),
        Entry(4, "b", "end", "x", 1),
        Entry(5, "b", "sink", "x", 1),
    ]
    verdict = check(entries, {"x": 1})
    assert verdict.overlaps == []
    assert verdict.starts["x", 1] == 2


def test_an_overlap_with_a_frozen_process_is_distinguished_from_one_after_it_woke() -> None:
    entries = [
        Entry(1, "a", "start", "x", 1),
        Entry(2, "a", "frozen"),
        Entry(3, "b", "start", "x", 1),
        Entry(4, "a", "woken"),
        Entry(5, "a", "cancel", "x", 1),
        Entry(6, "a", "start", "x", 1),
        Entry(7, "a", "end", "x", 1),
        Entry(8, "b", "end", "x", 1),
        Entry(9, "b", "sink", "x", 1),
    ]
    verdict = check(entries, {"x": 1})
    assert [overlap.was_frozen for overlap in verdict.overlaps] == [True, False]
    assert [overlap.at for overlap in verdict.overlaps_awake()] == [6]


def test_what_was_begun_before_a_freeze_may_go_on_after_it() -> None:
    entries = [
        Entry(1, "a", "start", "x", 1),
        Entry(2, "a", "frozen"),
        Entry(3, "a", "woken"),
        Entry(4, "b", "start", "x", 1),
        Entry(5, "a", "end", "x", 1),
        Entry(6, "a", "start", "x", 2),
        Entry(7, "b", "end", "x", 1),
        Entry(8, "b", "start", "x", 2),
    ]
    verdict = check(entries, {"x": 2})
    assert [(one.at, one.was_frozen) for one in verdict.overlaps] == [
        (4, True),
        (6, False),
        (8, False),
    ]


def test_an_event_that_arrives_twice_is_repeated() -> None:
    entries = clean(0)
    place = place_of(entries, "sink", "client 0", 3)
    entries.insert(place, entries[place])
    assert check(entries, SENT).repeated == 1


WRITER = """
import sys
from tests.helpers.system.log import Log
log = Log(sys.argv[1], sys.argv[2])
for seq in range(1, 501):
    with log.working(sys.argv[2], seq):
        pass
    log.sink(sys.argv[2], seq)
"""


def test_processes_that_write_at_once_leave_whole_lines_in_their_order(tmp_path: Path) -> None:
    path = tmp_path / "log"
    names = ("a", "b", "c")
    root = str(Path(__file__).parents[2])
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), name],
            env={**os.environ, "PYTHONPATH": root},
        )
        for name in names
    ]
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    verdict = check(entries_of(path), dict.fromkeys(names, 500))
    assert (verdict.lost, verdict.misordered, verdict.overlaps) == (set(), [], [])


def test_a_handler_that_raises_has_ended(tmp_path: Path) -> None:
    log = Log(tmp_path / "log", "a")
    with pytest.raises(ValueError, match="poison"), log.working("x", 1):
        raise ValueError("poison")
    log.close()
    assert [entry.what for entry in entries_of(tmp_path / "log")] == ["start", "end"]
