"""What happens to the rows of a table, and to their order, while readers of it fail.

One half of the seeded runs of a test has no keys, and one half of each writes results into the
table's database.
"""

from __future__ import annotations

import random
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.helpers.system.poller import LEASE, STEPS, Orders, Step
from tests.helpers.system.pollers import Pollers

ATTEMPTS, EVENTS = 3, 30
# Of readers of a row that kills them: all attempts but one beside others, and then all alone.
LOSSES = 2 * ATTEMPTS - 1

# The time of a step at which a poller dies, how long it works on a row, and its lease.
WHEN: dict[Step, tuple[int, float, float]] = {
    "handling": (25, 0.002, LEASE),
    # A slow claim may be followed by one settlement of all rows.
    "writing": (1, 0.002, LEASE),
    "committed": (1, 0.002, LEASE),
    "renewing": (1, 0.1, 0.5),
}
OTHERWISE = (2, 0.002, LEASE)


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("step", STEPS)
def test_a_poller_killed_at_any_step_loses_nothing_and_nothing_is_done_twice(
    database: str, tmp_path: Path, run_seed: int, step: Step, beside: bool
) -> None:
    nth, seconds, lease = WHEN.get(step, OTHERWISE)
    orders = Orders(
        database,
        by=bool(run_seed % 2),
        results=True,
        lease=lease,
        seconds=seconds,
        beside=beside,
    )
    with Pollers(orders, tmp_path, clients=10, events=20) as pollers:
        assert pollers.ended(pollers.start(dies=step, nth=nth)) == -signal.SIGKILL
        held = pollers.stats().in_work
        # Long enough to lose no lease by itself, even on a slow machine.
        last = pollers.start(lease=30.0)
        # If nothing was held and all is done, there is nothing else to wait for.
        pollers.until(lambda: pollers.are_there(last))
        pollers.check()
        # Only rows that the dead one held were delivered again.
        assert pollers.drained(last)["redelivered"] == pollers.stats().repeated == held


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("by", [False, True])
def test_no_row_is_given_to_two_of_four_pollers(
    database: str, tmp_path: Path, run_seed: int, by: bool, beside: bool
) -> None:
    # No test waits for a lease: a slow machine loses none by itself.
    orders = Orders(database, by=by, results=bool(run_seed % 2), lease=30.0, seconds=0.02)
    orders = replace(orders, beside=beside)
    with Pollers(orders, tmp_path, clients=40, events=15) as pollers:
        for _ in range(4):
            pollers.start()
        pollers.check(repeats=False)
        assert pollers.stats().repeated == 0


@pytest.mark.parametrize("frozen", [False, True])
def test_a_reader_that_is_killed_or_frozen_loses_nothing_and_wakes_beside_nobody(
    database: str, tmp_path: Path, run_seed: int, frozen: bool
) -> None:
    random_ = random.Random(run_seed)
    with Pollers(Orders(database, results=bool(run_seed % 2)), tmp_path) as pollers:
        first, _ = pollers.start_two()
        time.sleep(random_.uniform(0, 0.5))
        if frozen:
            pollers.freeze(first)
            time.sleep(random_.uniform(1.5, 3.0) * LEASE)
            pollers.wake(first)
            # It has time to do what it must not.
            time.sleep(LEASE)
        else:
            pollers.kill(first)
        pollers.check()
        assert pollers.stale_starts(first) == []


@pytest.mark.parametrize("by", [False, True])
@pytest.mark.parametrize("step", STEPS)
def test_rows_with_priorities_and_snoozed_ones_survive_kills_and_keep_the_order_of_their_keys(
    database: str, tmp_path: Path, run_seed: int, step: Step, by: bool
) -> None:
    nth, seconds, lease = WHEN.get(step, OTHERWISE)
    orders = Orders(database, by=by, results=True, lease=lease, seconds=seconds, ranked=True)
    orders = replace(orders, attempts=6)
    random_ = random.Random(run_seed)
    special = {
        (f"client {n}", seq): {"snoozes": True}
        for n in range(10)
        for seq in random_.sample(range(1, 21), 3)
    }
    with Pollers(orders, tmp_path, clients=10, events=20, special=special) as pollers:
        for _ in range(2):
            assert pollers.ended(pollers.start(dies=step, nth=nth)) == -signal.SIGKILL
        pollers.start(lease=30.0)
        pollers.check()


@pytest.mark.parametrize("step", ["handling", "committed"])
def test_rows_that_are_cancelled_while_pollers_are_killed_are_not_done_again_nor_overtaken(
    database: str, tmp_path: Path, run_seed: int, step: Step
) -> None:
    nth, _, lease = WHEN[step]
    orders = Orders(database, results=True, lease=lease, seconds=0.4, lingers=0.5)
    orders = replace(orders, beside=bool(run_seed % 2))
    cancelled: set[tuple[str, int]] = set()
    with Pollers(orders, tmp_path, clients=6, events=10) as pollers:
        pollers.start(dies=step, nth=nth)
        while not pollers.reap():
            if len(cancelled) < 6:
                cancelled |= set(pollers.cancel_in_work(1))
            time.sleep(0.1)
        before, arrived = frozenset(cancelled), pollers.arrived()
        last = pollers.start(lease=30.0)
        pollers.until(lambda: pollers.arrived() > arrived)
        while len(cancelled) < len(before) + 6:
            cancelled |= set(pollers.cancel_in_work(1))
            time.sleep(0.1)
        pollers.check(dead=frozenset(cancelled))
        assert pollers.stats().cancelled == len(cancelled)
        assert pollers.drained(last)["cancelled"] > 0
        assert not before & pollers.begun(last)


@pytest.mark.parametrize("end", ["kill", "cancelled", "drained"])
def test_rows_that_an_ended_reader_had_left_in_the_table_are_done_in_order_by_the_next(
    database: str, tmp_path: Path, run_seed: int, end: str
) -> None:
    random_ = random.Random(run_seed)
    orders = Orders(database, results=True, beside=bool(run_seed % 2), share=4, seconds=0.2)
    with Pollers(orders, tmp_path, clients=5, events=60) as pollers:
        first = pollers.start(lease=LEASE if end == "kill" else 30.0)
        pollers.until(lambda: pollers.arrived() > 0 and pollers.has_left())
        time.sleep(random_.uniform(0, 0.3))
        getattr(pollers, end)(first)
        assert pollers.stats().waiting
        pollers.start(seconds=0.01)
        pollers.check(repeats=end != "drained")


@pytest.mark.parametrize("by", [False, True])
def test_what_a_reader_did_that_was_frozen_past_its_lease_is_void(
    database: str, tmp_path: Path, run_seed: int, by: bool
) -> None:
    random_ = random.Random(run_seed)
    orders = Orders(database, by=by, results=True, seconds=0.3)
    with Pollers(orders, tmp_path, clients=10, events=1) as pollers:
        # Long enough that it has work in progress when it is frozen.
        sleeper = pollers.start(seconds=4 * LEASE)
        pollers.until(lambda: len(pollers.verdict().starts) == 10)
        time.sleep(random_.uniform(0, 0.3))
        # A process that is frozen while it writes to a file of SQLite locks it.
        pollers.freeze_between_writes(sleeper)
        pollers.until(lambda: pollers.stats().expired == pollers.stats().in_work)
        held = pollers.stats().in_work
        other = pollers.start()
        # If nothing was held, there is nothing else to wait for.
        pollers.until(lambda: pollers.are_there(other))
        pollers.check()
        pollers.wake(sleeper)
        # It wakes with its results, and writes none of them.
        assert pollers.drained(sleeper)["lost_leases"] == held
        assert pollers.drained(other)["redelivered"] == pollers.stats().repeated == held
        pollers.check()


@pytest.mark.parametrize("what", ["kills", "blocks"])
def test_a_row_that_kills_or_blocks_its_readers_is_dead_and_takes_no_other_with_it(
    database: str, tmp_path: Path, run_seed: int, what: str
) -> None:
    random_ = random.Random(run_seed)
    poison = (f"client {random_.randrange(20)}", random_.randrange(10, EVENTS))
    orders = Orders(database, results=bool(run_seed % 2), attempts=ATTEMPTS)
    with Pollers(orders, tmp_path, events=EVENTS, special={poison: {what: True}}) as pollers:
        pollers.start_two()
        pollers.until(lambda: pollers.verdict().lost <= {poison}, replace=True)
        pollers.until_done(replace=True)
        dead = pollers.dead()
        # A blocked poller may still finish a row that no other had taken.
        assert len(dead) == 1 or (what == "blocks" and not dead)
        pollers.check(dead=frozenset({poison} if dead else ()), overlapping=what == "blocks")
        assert pollers.verdict().starts[poison] <= LOSSES
        for row in dead:
            assert row.attempts == LOSSES
            assert row.error is not None
            assert row.error.startswith("LeaseLost")


@pytest.mark.parametrize("by", [False, True])
def test_readers_whose_clocks_differ_by_an_hour_write_no_result_twice(
    database: str, tmp_path: Path, run_seed: int, by: bool
) -> None:
    random_ = random.Random(run_seed)
    orders = Orders(database, by=by, results=True, lease=30.0, attempts=100)
    with Pollers(orders, tmp_path, events=15) as pollers:
        pollers.start(ahead=random_.choice([-3600.0, 3600.0]))
        pollers.start()
        # In SQLite the one that is ahead takes rows that the other works on.
        pollers.check(overlapping=database.startswith("sqlite"))


@pytest.mark.parametrize("by", [False, True])
@pytest.mark.parametrize("jump", [-3600.0, 3600.0])
def test_a_clock_that_is_set_while_rows_are_worked_on_loses_none(
    database: str, tmp_path: Path, run_seed: int, jump: float, by: bool
) -> None:
    at = random.Random(run_seed).randrange(10, 100)
    orders = Orders(database, by=by, results=True, lease=30.0, ahead=jump, ahead_from=at)
    with Pollers(orders, tmp_path, events=15) as pollers:
        only = pollers.start()
        pollers.check()
        assert pollers.drained(only)["redelivered"] == pollers.stats().repeated
